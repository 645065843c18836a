"""An exported program as one graph module that owns its parameters, as passes need it."""

from __future__ import annotations

from typing import Any

from flambeau.export.exported_program import ExportedModule, ExportedProgram
from flambeau.export.graph_signature import InputKind, OutputKind
from flambeau.fx import Graph, GraphModule, Node
from flambeau.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from flambeau.nn.modules.module import Module
from flambeau.ops import tags

__all__ = ["unlifted"]


def unlifted(model: Any) -> GraphModule:
    """A graph module with the program's parameters, buffers and constants as attributes, at their paths."""
    if isinstance(model, ExportedModule):
        model = model._program
    if not isinstance(model, ExportedProgram):
        if isinstance(model, GraphModule):
            return model
        raise TypeError(
            f"[pt2e] expected what torch.export.export(model, args).module() returns, got {type(model).__name__}"
        )
    signature = model.graph_signature
    root = Module()
    graph = Graph()
    values: dict[Node, Any] = {}
    writes = [s for s in signature.output_specs if s.kind is not OutputKind.USER_OUTPUT]
    specs = dict(zip((n for n in model.graph.nodes if n.op == "placeholder"), signature.input_specs))
    for node, spec in specs.items():
        if spec.kind is InputKind.USER_INPUT:
            values[node] = graph.placeholder(node.name)
        else:
            _adopt(root, model, str(spec.target), spec.kind)
            values[node] = graph.get_attr(str(spec.target))
        values[node].meta.update(node.meta)
    for node in model.graph.nodes:
        if node.op == "output":
            _finish(graph, node, values, model, writes)
        elif node.op != "placeholder":
            if node.op == "get_attr":
                _adopt_attribute(root, model, str(node.target))
            values[node] = graph.node_copy(node, values.__getitem__)
    _write_nothing_in_place(graph)
    names = [n.name for n in specs if specs[n].kind is InputKind.USER_INPUT]
    _set_structure(graph, model, names)
    module = GraphModule(root, graph)
    module._out_spec = model.call_spec.out_spec
    module._in_spec = model.call_spec.in_spec
    return module


def _write_nothing_in_place(graph: Graph) -> None:
    """Operators that write over what only they read return it instead, so that patterns have one form."""
    import flambeau as fl

    views = tags.operators("view")
    for node in graph.nodes:
        name = getattr(node.target, "_full_name", "") if node.op == "call_function" else ""
        base, _, overload = name.partition(".")
        if not base.endswith("_") or "::" in name or not node.args:
            continue
        source = node.args[0]
        is_own = isinstance(source, Node) and source.op == "call_function" and len(source.users) == 1
        if is_own and getattr(source.target, "_full_name", "") not in views and hasattr(fl.ops.aten, base[:-1]):
            node.target = getattr(getattr(fl.ops.aten, base[:-1]), overload or "default")


def _set_structure(graph: Graph, program: ExportedProgram, names: list[str]) -> None:
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    entry = program.module_call_graph[0].signature if program.module_call_graph else None
    argument_names = list(getattr(entry, "forward_arg_names", None) or names)
    graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(argument_names, in_spec, out_spec)))


def _owner(root: Module, path: str) -> tuple[Module, str]:
    *parts, last = path.split(".")
    for part in parts:
        if part not in root._modules:
            root.add_module(part, Module())
        root = root._modules[part]
    return root, last


def _adopt(root: Module, program: ExportedProgram, path: str, kind: InputKind) -> None:
    value = program.state_dict[path] if path in program.state_dict else program.constants[path]
    owner, name = _owner(root, path)
    if kind is InputKind.PARAMETER:
        owner.register_parameter(name, value)
    else:
        owner.register_buffer(name, value)


def _adopt_attribute(root: Module, program: ExportedProgram, path: str) -> None:
    value: Any = program.graph_module
    for part in path.split("."):
        value = getattr(value, part)
    owner, name = _owner(root, path)
    setattr(owner, name, value)


def _finish(graph: Graph, node: Node, values: dict[Node, Any], program: ExportedProgram, writes: list[Any]) -> None:
    """The results of the user; writes to buffers are operators of the graph again."""
    import flambeau as fl

    results = list(node.args[0])
    remaining = []
    for spec, result in zip(program.graph_signature.output_specs, results):
        value = values.get(result, result) if isinstance(result, Node) else result
        if spec.kind is OutputKind.USER_OUTPUT:
            remaining.append(value)
        elif spec.target is not None:
            target = next(v for v in values.values() if v.op == "get_attr" and v.target == spec.target)
            graph.call_function(fl.ops.aten.copy_.default, (target, value))
    graph.output(tuple(remaining))
