"""`program.module()`: a graph module that has the program's parameters, buffers and constants at their paths.

Placeholders of state become attributes of the module, and results that stand for writes are copied to where they belong. Values
of a call are compared with what the program was exported for by a submodule, `_guards_fn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau.export.graph_signature import ConstantArgument, InputKind, OutputKind
from flambeau.fx._codegen import CodeGen, _PyTreeCodeGen, _PyTreeInfo
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.proxy import Proxy
from flambeau.nn.modules.module import Module
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau.export.exported_program import ExportedProgram

__all__ = ["CallCode", "ExportedModule", "Guards", "assign", "unlift"]


class Guards(Module):
    """Raises when it is called with leaves that the program was not exported for."""

    _is_impure = True

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        object.__setattr__(self, "_program", program)

    def forward(self, *leaves: Any) -> None:
        if not fl.compiler.is_compiling() and not any(isinstance(leaf, Proxy) for leaf in leaves):
            self._program._check_inputs(list(leaves))

    def __deepcopy__(self, memo: Any) -> Guards:
        return Guards(self._program)


class ExportedModule(GraphModule):
    """An exported program as a module."""

    def train(self, mode: bool = True) -> Any:
        raise NotImplementedError(
            "[export] expected a program that stays in the mode it was exported in, got train(): Calling train() is not "
            "supported yet."
        )

    def eval(self) -> Any:
        raise NotImplementedError(
            "[export] expected a program that stays in the mode it was exported in, got eval(): Calling eval() is not "
            "supported yet."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        code = self.graph._codegen
        if isinstance(code, CallCode) and len(args) + len(kwargs) != len(code.positional) + len(code.keywords):
            raise ValueError(
                f"[export] expected arguments {[*code.positional, *code.keywords]}, got {len(args)} and the keywords {list(kwargs)}: "
                "Trying to flatten user inputs with exported input tree spec"
            )
        return super().__call__(*args, **kwargs)

    def _check_structure(self, args: Any, kwargs: Any) -> Any:
        """The leaves of a call."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if not fl.compiler.is_compiling() and spec != self._in_spec:
            raise ValueError(
                f"[export] expected arguments of the structure {self._in_spec}, got {spec}: Trying to flatten user inputs with "
                "exported input tree spec"
            )
        return leaves


class CallCode(_PyTreeCodeGen):
    """forward with the parameters of the original one, over a graph that has leaves as placeholders."""

    def __init__(self, positional: list[str], keywords: list[str], in_spec: Any, out_spec: Any) -> None:
        super().__init__(_PyTreeInfo([*positional, *keywords], in_spec, out_spec))
        self.positional = positional
        self.keywords = keywords

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        definition = CodeGen.gen_fn_def(self, ["self", *self.positional, *self.keywords], maybe_return_annotation)
        leaves = [var.split(":")[0].split("=")[0].strip() for var in free_vars if var != "self"]
        if leaves == [*self.positional, *self.keywords] or not leaves:
            return definition
        keywords = ", ".join(f"{name!r}: {name}" for name in self.keywords)
        positional = "".join(f"{name}, " for name in self.positional)
        return f"{definition}\n    {', '.join(leaves)}, = self._check_structure(({positional}), {{{keywords}}})"

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.tree_leaves(inputs)

    def generate_output(self, output_args: Any, *, descs: object = None) -> str:
        spec = self.pytree_info.out_spec
        results = iter(output_args)
        text = _container_text(spec, results)
        return f"return {text or f'pytree.tree_unflatten({output_args!r}, self._out_spec)'}"


def _container_text(spec: Any, leaves: Any) -> str | None:
    """The source of a value of tuples, lists and dicts; None where other containers occur."""
    if spec.is_leaf():
        return repr(next(leaves))
    inside = [_container_text(child, leaves) for child in spec.children_specs]
    parts = [text for text in inside if text is not None]
    if len(parts) < len(inside):
        return None
    if spec.type is tuple:
        return "(" + "".join(f"{text}, " for text in parts).rstrip(" " if len(parts) == 1 else ", ") + ")"
    if spec.type is list:
        return "[" + ", ".join(parts) + "]"
    if spec.type is dict:
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(spec.context, parts)) + "}"
    return None


def unlift(program: ExportedProgram, check_guards: bool = True) -> ExportedModule:
    """A module of the program that shares its state."""
    root, graph = Module(), Graph()
    values: dict[Node, Node] = {}
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    specs = dict(zip(placeholders, program.graph_signature.input_specs))
    for node, spec in specs.items():
        if spec.kind is InputKind.USER_INPUT:
            values[node] = graph.placeholder(node.name)
        else:
            _adopt(root, program, str(spec.target), spec)
            values[node] = graph.get_attr(str(spec.target))
        values[node].meta.update(node.meta)
    users = [values[n] for n, spec in specs.items() if spec.kind is InputKind.USER_INPUT]
    if check_guards and users:
        root.add_module("_guards_fn", Guards(program))
        graph.call_module("_guards_fn", tuple(users))
    for node in program.graph.nodes:
        if node.op == "output":
            _finish(graph, node, values, specs, program)
        elif node.op != "placeholder":
            if node.op == "get_attr":
                assign(root, str(node.target), _attribute(program.graph_module, str(node.target)))
            values[node] = graph.node_copy(node, values.__getitem__)
    graph.set_codegen(_call_code(program, [n.name for n in users]))
    module = ExportedModule(root, graph)
    for spec in specs.values():
        if spec.kind is InputKind.CONSTANT_TENSOR:  # which a graph module makes a buffer
            owner, name = _owner(module, str(spec.target))
            value = owner._buffers.pop(name)
            setattr(owner, name, value)
    return module


def _call_code(program: ExportedProgram, leaves: list[str]) -> CodeGen:
    in_spec, out_spec = program.call_spec.in_spec, program.call_spec.out_spec
    args, kwargs = in_spec.children_specs
    entry = program.module_call_graph[0].signature if program.module_call_graph else None
    names = list(getattr(entry, "forward_arg_names", None) or [])
    positional = names[: args.num_children] if len(names) >= args.num_children else []
    if not positional:
        plain = args.num_leaves == args.num_children
        positional = leaves[: args.num_children] if plain else [f"arg_{i}" for i in range(args.num_children)]
    return CallCode(positional, [str(name) for name in kwargs.context or ()], in_spec, out_spec)


def _finish(graph: Graph, node: Node, values: dict[Node, Node], specs: dict[Node, Any], program: Any) -> None:
    """The results of the user; writes are operators of the graph again."""
    targets = {spec.target or spec.arg.name: values[n] for n, spec in specs.items()}
    results = []
    for spec, result in zip(program.graph_signature.output_specs, node.args[0]):
        value = values.get(result, result) if isinstance(result, Node) else result
        if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            results.append(spec.arg.value if isinstance(spec.arg, ConstantArgument) else value)
        elif spec.target is not None and spec.target in targets:
            if spec.kind is OutputKind.PARAMETER_MUTATION:
                value = graph.call_function(fl.ops.aten.detach.default, (value,))
                place = graph.call_function(fl.ops.aten.detach.default, (targets[spec.target],))
            else:
                place = targets[spec.target]
            graph.call_function(fl.ops.aten.copy_.default, (place, value))
    graph.output(tuple(results)).meta.update(node.meta)


# ---------------------------------------------------------------------------------------------- attributes


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _owner(root: Module, path: str) -> tuple[Module, str]:
    *parts, last = path.split(".")
    for part in parts:
        if part not in root._modules:
            root.add_module(part, Module())
        root = root._modules[part]
    return root, last


def assign(root: Module, path: str, value: Any) -> None:
    """Sets an attribute at a dotted path, making modules on the way."""
    owner, name = _owner(root, path)
    setattr(owner, name, value)


def _adopt(root: Module, program: ExportedProgram, path: str, spec: Any) -> None:
    value = program.state_dict[path] if path in program.state_dict else program.constants[path]
    owner, name = _owner(root, path)
    if spec.kind is InputKind.PARAMETER:
        owner.register_parameter(name, value)
    elif spec.kind is InputKind.BUFFER:
        owner.register_buffer(name, value, persistent=spec.persistent is not False)
    else:
        setattr(owner, name, value)
