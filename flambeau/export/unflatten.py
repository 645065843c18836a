"""The modules of an exported program again: `unflatten` gives a module with submodules that have graphs of their own.

Nodes say which module made them (`nn_module_stack`). Consecutive nodes of one submodule become one call of it: what they read
from elsewhere is its inputs, what is read elsewhere its results, and parameters are found where the original had them.
"""

from __future__ import annotations

import operator
from typing import Any

import flambeau as fl
from flambeau.export.exported_program import ExportedProgram, settle
from flambeau.export.graph_signature import InputKind
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg
from flambeau.utils import _pytree as pytree

__all__ = ["FlatArgsAdapter", "InterpreterModule", "UnflattenedModule", "unflatten"]


class FlatArgsAdapter:
    """Turns the leaves of a call with another structure into those of the program's. Derive and give it to `unflatten`."""

    def adapt(
        self, target_spec: Any, input_spec: Any, input_args: list[Any], metadata: Any = None, obj: Any = None
    ) -> Any:
        raise NotImplementedError("[unflatten] expected an adapter that defines adapt()")

    def get_flat_arg_paths(self) -> list[str]:
        return []


class InterpreterModule(fl.nn.Module):
    """A submodule with the part of the graph that it made."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        object.__setattr__(self, "graph", None)
        object.__setattr__(self, "_runner", None)

    def finish(self, graph: Graph) -> None:
        object.__setattr__(self, "graph", graph)
        object.__setattr__(self, "_runner", None)

    def _run(self, *args: Any) -> Any:
        if self._runner is None:
            object.__setattr__(self, "_runner", GraphModule(self, self.graph))
        for name, module in self._modules.items():  # submodules may have been swapped
            if self._runner._modules.get(name) is not module:
                self._runner._modules[name] = module
        return self._runner(*args)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, *kwargs.values())

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        text = str(GraphModule(self, self.graph).code)
        if print_output:
            print(text)
        return text


class UnflattenedModule(InterpreterModule):
    """The whole program as a module with the submodules of the original."""

    def __init__(self, program: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__("")
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_adapter", flat_args_adapter)
        self.graph_signature = program.graph_signature
        self.module_call_graph = program.module_call_graph
        _Builder(program, self).build()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        program = self._program
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != program.call_spec.in_spec:
            if self._adapter is None:
                raise TypeError(
                    f"[unflatten] expected arguments of the structure {program.call_spec.in_spec}, got {spec}"
                )
            leaves = self._adapter.adapt(program.call_spec.in_spec, spec, leaves)
        program._check_inputs(leaves)
        results = self._run(*leaves)
        state = dict(self.named_parameters(remove_duplicate=False)) | dict(self.named_buffers(remove_duplicate=False))
        outputs = settle(program.graph_signature, results, state, leaves)
        return pytree.tree_unflatten(outputs, program.call_spec.out_spec)


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """The modules of a program. Each submodule can be replaced by another that takes and returns the same tensors."""
    if not isinstance(module, ExportedProgram):
        raise TypeError(f"[unflatten] expected an ExportedProgram, got {type(module).__name__}")
    return UnflattenedModule(module, flat_args_adapter)


class _Builder:
    """Splits the graph of a program into those of its modules."""

    def __init__(self, program: ExportedProgram, root: UnflattenedModule) -> None:
        self.program = program
        self.root = root
        self.nodes = [n for n in program.graph.nodes if n.op in ("call_function", "get_attr")]
        self.paths = {node: self._path(node) for node in self.nodes}
        self.targets: dict[Node, str] = {}  # placeholders of state
        self.user_inputs: list[Node] = []
        self.copies: dict[int, fl.Tensor] = {}  # by the address of the program's tensor
        self.calls: dict[str, int] = {}

    def build(self) -> None:
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, self.program.graph_signature.input_specs):
            if spec.kind is InputKind.USER_INPUT:
                self.user_inputs.append(node)
            else:
                self.targets[node] = str(spec.target)
        for target in dict.fromkeys(self.targets.values()):
            self._register(self.root, target, target)
        (output,) = (n for n in self.program.graph.nodes if n.op == "output")
        graph, values = Graph(), {}
        for node in self.user_inputs:
            values[node] = graph.placeholder(node.name)
        self._level(self.root, "", 0, graph, values, self.nodes)
        graph.output(map_arg(output.args[0], lambda n: self._value(n, "", graph, values)))
        self.root.finish(graph)

    def _path(self, node: Node) -> list[str]:
        """The modules around a node, outermost first, each by its path."""
        stack = node.meta.get("nn_module_stack") or {}
        return [path for path, _ in stack.values() if path]

    def _own(self, value: Any) -> Any:
        """State of the new module's own, tied where the program's is: calls may write to it."""
        if isinstance(value, fl.Tensor) and id(value) not in self.copies:
            copy = value.detach().clone()
            is_parameter = isinstance(value, fl.nn.Parameter)
            self.copies[id(value)] = fl.nn.Parameter(copy, value.requires_grad) if is_parameter else copy
        return self.copies.get(id(value), value)

    def _register(self, owner: Any, relative: str, target: str) -> None:
        """Puts a parameter, buffer or constant at its place below a module."""
        program = self.program
        value = program.state_dict.get(target, program.constants.get(target))
        *parts, last = relative.split(".")
        for part in parts:
            if part not in owner._modules:
                owner.add_module(part, InterpreterModule(part))
            owner = owner._modules[part]
        if last in owner._parameters or last in owner._buffers:
            return
        value = self._own(value)
        if target in program.graph_signature.parameters:
            owner.register_parameter(last, value)
        else:
            saved = target in program.state_dict
            owner.register_buffer(last, value, persistent=saved)

    def _value(self, node: Node, path: str, graph: Graph, values: dict[Node, Node]) -> Node:
        """A value of the program in a module's graph; state is fetched where it is first used."""
        if node not in values and node in self.targets:
            target = self.targets[node]
            values[node] = graph.get_attr(target[len(path) + 1 :] if path else target)
        return values[node]

    # ------------------------------------------------------------------------------------------ levels

    def _level(
        self, module: Any, path: str, depth: int, graph: Graph, values: dict[Node, Node], nodes: list[Node]
    ) -> None:
        """Fills the graph of a module with its own nodes and with calls of its submodules."""

        def child_of(node: Node) -> str | None:
            return self.paths[node][depth] if len(self.paths[node]) > depth else None

        i = 0
        while i < len(nodes):
            child = child_of(nodes[i])
            if child is None:
                self._copy(nodes[i], path, graph, values)
                i += 1
                continue
            end = i
            while end < len(nodes) and child_of(nodes[end]) == child:
                end += 1
            self._call(module, path, child, depth, graph, values, nodes[i:end])
            i = end

    def _copy(self, node: Node, path: str, graph: Graph, values: dict[Node, Node]) -> None:
        if node.op == "get_attr":
            held = getattr(self.program.graph_module, node.target)  # type: ignore[arg-type]
            owner = self.root if not path else self.root.get_submodule(path)
            owner.add_module(node.target, held)  # type: ignore[arg-type]
        for used in node.all_input_nodes:
            self._value(used, path, graph, values)
        values[node] = graph.node_copy(node, lambda n: self._value(n, path, graph, values))

    def _call(
        self, module: Any, path: str, call: str, depth: int, graph: Graph, values: dict[Node, Node], nodes: list[Node]
    ) -> None:
        """One call of a submodule that made these nodes. Calls after the first are named `path@1`."""
        own = set(nodes)
        child, _, number = call.partition("@")
        reads = [n for node in nodes for n in node.all_input_nodes if n not in own]
        inputs = [n for n in dict.fromkeys(reads) if not self.targets.get(n, "").startswith(child + ".")]
        results = [n for n in nodes if any(user not in own for user in n.users)]
        relative = child[len(path) + 1 :] if path and child.startswith(path + ".") else child
        times = self.calls[call] = self.calls.get(call, 0) + 1  # a run of nodes may be interrupted by others
        name = f"{relative}@{number}" if number else relative
        name += "" if times == 1 else f"_{times}"
        target = self._place(module, name, child)
        inner, held = Graph(), {}
        for node in inputs:
            held[node] = inner.placeholder(node.name)
        self._level(target, child, depth + 1, inner, held, nodes)
        returned = [held[n] for n in results]
        inner.output(returned[0] if len(returned) == 1 else tuple(returned))
        target.finish(inner)
        call_node = graph.call_module(name, tuple(self._value(n, path, graph, values) for n in inputs))
        for i, node in enumerate(results):
            values[node] = call_node if len(results) == 1 else graph.call_function(operator.getitem, (call_node, i))

    def _place(self, module: Any, name: str, child: str) -> InterpreterModule:
        """The submodule of that name; another one for each further call, with the same state."""
        *parts, last = name.split(".")
        for part in parts:
            if part not in module._modules:
                module.add_module(part, InterpreterModule(part))
            module = module._modules[part]
        if last not in module._modules:
            module.add_module(last, InterpreterModule(last))
            if last not in child.split("."):
                for target in dict.fromkeys(self.targets.values()):
                    if target.startswith(child + "."):
                        self._register(module._modules[last], target[len(child) + 1 :], target)
        return module._modules[last]
