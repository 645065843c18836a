"""Divides the graph of a program among the modules that made its nodes (`nn_module_stack`).

Consecutive nodes of one submodule become one call of it: what they read from elsewhere is its inputs, what is read elsewhere its
results, and parameters are found where the original had them. A module whose signature was preserved takes and returns what the
original did. Calls that do the same to the same state are calls of one module.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import flambeau as fl
from flambeau.export._unlift import CallCode
from flambeau.export.graph_signature import ConstantArgument, InputKind
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node, map_arg
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau.export.exported_program import ExportedProgram

__all__ = ["Builder"]


class Builder:
    """Splits the graph of a program into those of its modules, which are of class `kind`."""

    def __init__(self, program: ExportedProgram, root: Any, kind: Any) -> None:
        self.program = program
        self.root = root
        self.kind = kind
        self.nodes = [n for n in program.graph.nodes if n.op in ("call_function", "get_attr")]
        self.names = {n.name: n for n in program.graph.nodes}
        self.paths = {node: self._path(node) for node in self.nodes}
        self.kinds = {path: cls for n in self.nodes for path, cls in (n.meta.get("nn_module_stack") or {}).values()}
        self.signatures = {e.fqn: e.signature for e in program.module_call_graph if e.fqn and e.signature is not None}
        self.targets: dict[Node, str] = {}  # placeholders of state
        self.user_inputs: list[Node] = []
        self.copies: dict[int, fl.Tensor] = {}  # by the address of the program's tensor
        self.calls: dict[str, int] = {}
        self.finished: dict[Any, list[tuple[str, Any]]] = {}  # by state: places of modules, and the modules

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
            values[node] = _placeholder(graph, node.name, node)
        self._level(self.root, "", 0, graph, values, self.nodes)
        graph.output(map_arg(output.args[0], lambda n: self._value(n, "", graph, values)))
        self.root.finish(graph)
        self._order(self.root, "", {entry.fqn: i for i, entry in enumerate(self.program.module_call_graph)})

    def _path(self, node: Node) -> list[str]:
        """The modules around a node, outermost first, each by its path."""
        chain: list[str] = []
        for key, (path, _) in (node.meta.get("nn_module_stack") or {}).items():
            around = chain[-1].partition("@")[0] + "." if chain else ""
            if path and path.startswith(
                around
            ):  # one that was called from a module that does not hold it is part of it
                chain.append(path if "@" in path else path + "".join(key.rpartition("@")[1:] if "@" in key else ()))
        return chain

    def _order(self, module: Any, path: str, places: dict[str, int]) -> None:
        """Puts submodules in the order of the original."""

        def place(name: str) -> int:
            return places.get(f"{path}.{name}" if path else name, len(places))

        module._modules = {name: module._modules[name] for name in sorted(module._modules, key=place)}
        for name, child in module._modules.items():
            if isinstance(child, self.kind):
                self._order(child, f"{path}.{name}" if path else name, places)

    # ------------------------------------------------------------------------------------------ state

    def _own(self, value: Any) -> Any:
        """State of the new module's own, tied where the program's is: calls may write to it."""
        if isinstance(value, fl.Tensor) and id(value) not in self.copies:
            copy = value.detach().clone()
            is_parameter = isinstance(value, fl.nn.Parameter)
            self.copies[id(value)] = fl.nn.Parameter(copy, value.requires_grad) if is_parameter else copy
        return self.copies.get(id(value), value)

    def _held(self, target: str) -> Any:
        program = self.program
        return program.state_dict[target] if target in program.state_dict else program.constants.get(target)

    def inside(self, node: Node, path: str) -> str | None:
        """Where state is below a module: under its own name, or under that of the same tensor."""
        target = self.targets.get(node)
        if target is None or not path or target.startswith(path + "."):
            return target
        below = (other for other in self.targets.values() if other.startswith(path + "."))
        return next((other for other in below if self._held(other) is self._held(target)), None)

    def _register(self, owner: Any, relative: str, target: str) -> None:
        """Puts a parameter, buffer or constant at its place below a module."""
        *parts, last = relative.split(".")
        owner = self._submodule(owner, parts)
        if last in owner._parameters or last in owner._buffers:
            return
        value = self._own(self._held(target))
        signature = self.program.graph_signature
        if target in signature.parameters:
            owner.register_parameter(last, value)
        elif target in signature.buffers:
            owner.register_buffer(last, value, persistent=target in self.program.state_dict)
        else:
            setattr(owner, last, value)

    def _submodule(self, owner: Any, parts: list[str]) -> Any:
        """The module below another, made where there is none."""
        for part in parts:
            if part not in owner._modules:
                path = f"{owner._path}.{part}" if owner._path else part
                owner.add_module(part, self.kind(path, self.kinds.get(path)))
            owner = owner._modules[part]
        return owner

    def _state_of(self, path: str) -> tuple[Any, ...]:
        """The state below a module, by which modules at several places are found."""
        below = [t for t in dict.fromkeys(self.targets.values()) if t.startswith(path + ".")]
        state = tuple((target[len(path) :], id(self._held(target))) for target in below)
        return state or (path,)

    def _value(self, node: Node, path: str, graph: Graph, values: dict[Node, Node]) -> Node:
        """A value of the program in a module's graph; state is fetched, and sizes computed, where first used."""
        if node in values:
            return values[node]
        if node in self.targets:
            target = self.inside(node, path)
            if target is None:
                raise RuntimeError(f"[unflatten] expected {path} to use state of its own, got {self.targets[node]}")
            values[node] = graph.get_attr(target[len(path) + 1 :] if path else target)
            values[node].meta.update(_described(node))
        elif node.op == "call_function":
            values[node] = graph.node_copy(node, lambda n: self._value(n, path, graph, values))
        else:
            raise RuntimeError(
                f"[unflatten] expected {path} to be given all that it uses, got {node.name} from outside"
            )
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
            graphs = getattr(self.program.graph_module, node.target)  # type: ignore[arg-type]
            owner = self.root if not path else self.root.get_submodule(path)
            owner.add_module(node.target, graphs)
        for used in node.all_input_nodes:
            self._value(used, path, graph, values)
        values[node] = graph.node_copy(node, lambda n: self._value(n, path, graph, values))

    def _call(
        self, module: Any, path: str, call: str, depth: int, graph: Graph, values: dict[Node, Node], nodes: list[Node]
    ) -> None:
        """One call of a submodule that made these nodes. Calls after the first are named `path@1`."""
        child, _, number = call.partition("@")
        relative = child[len(path) + 1 :] if path and child.startswith(path + ".") else child
        times = self.calls[call] = self.calls.get(call, 0) + 1  # a run of nodes may be interrupted by others
        name = f"{relative}@{number}" if number else relative
        name += "" if times == 1 else f"_{times}"
        known = dict(module.named_modules(remove_duplicate=False))
        target = self._place(module, name, child)
        signature = self.signatures.get(call) if times == 1 else None
        part = _Preserved(self, signature) if signature is not None else _Flat(self, nodes, child)
        inner = Graph()
        held: dict[Node, Node] = {}
        part.begin(inner, held)
        self._level(target, child, depth + 1, inner, held, nodes)
        part.end(inner, lambda n: self._value(n, child, inner, held))
        target.finish(inner)
        shared = self._shared(module, name, child, target)
        if shared is not None and name not in known:
            name = shared
        part.call(graph, name, values, lambda n: self._value(n, path, graph, values))

    def _shared(self, module: Any, name: str, child: str, target: Any) -> str | None:
        """The name of a module before this one that does the same; this one's place is empty again, or holds that module."""
        others = self.finished.setdefault(self._state_of(child), [])
        place = f"{module._path}.{name}" if module._path else name
        other = next((other for other in others if _same_module(other[1], target)), None)
        if other is None or other[1] is target:
            others.append((place, target))
            return None
        *parts, last = name.split(".")
        owner = self._submodule(module, parts)
        if "@" not in last and "_" not in last[len(child.rpartition(".")[2]) :]:
            owner._modules[last] = other[1]
            return name
        begin = f"{module._path}." if module._path else ""
        if not other[0].startswith(begin):
            others.append((place, target))
            return None
        del owner._modules[last]
        return other[0][len(begin) :]

    def _place(self, module: Any, name: str, child: str) -> Any:
        """The submodule of that name; another one for each further call, with the same state."""
        target = self._submodule(module, name.split("."))
        if name.rpartition(".")[2] not in child.split("."):
            for state in dict.fromkeys(self.targets.values()):
                if state.startswith(child + "."):
                    self._register(target, state[len(child) + 1 :], state)
        return target


class _Flat:
    """A call that takes and returns the tensors that the nodes exchange with others."""

    def __init__(self, builder: Builder, nodes: list[Node], path: str) -> None:
        own = set(nodes)
        reads = [n for node in nodes for n in node.all_input_nodes if n not in own]
        self.inputs = [n for n in dict.fromkeys(reads) if builder.inside(n, path) is None]
        self.results = [n for n in nodes if any(user not in own for user in n.users)]

    def begin(self, graph: Graph, held: dict[Node, Node]) -> None:
        for node in self.inputs:
            held[node] = _placeholder(graph, node.name, node)

    def end(self, graph: Graph, value: Any) -> None:
        returned = [value(n) for n in self.results]
        graph.output(returned[0] if len(returned) == 1 else tuple(returned))

    def call(self, graph: Graph, name: str, values: dict[Node, Node], value: Any) -> None:
        node = graph.call_module(name, tuple(value(n) for n in self.inputs))
        node.meta["val"] = tuple(result.meta.get("val") for result in self.results)
        for i, result in enumerate(self.results):
            values[result] = node if len(self.results) == 1 else graph.call_function(operator.getitem, (node, i))
            values[result].meta.update(_described(result))


class _Preserved:
    """A call with the signature of the original."""

    def __init__(self, builder: Builder, signature: Any) -> None:
        self.signature = signature
        self.inputs = [self._leaf(builder, argument) for argument in signature.inputs]
        self.outputs = [self._leaf(builder, argument) for argument in signature.outputs]

    def _leaf(self, builder: Builder, argument: Any) -> Any:
        return argument.value if isinstance(argument, ConstantArgument) else builder.names.get(argument.name)

    def begin(self, graph: Graph, held: dict[Node, Node]) -> None:
        args, kwargs = self.signature.in_spec.children_specs
        names = list(self.signature.forward_arg_names or [])
        keywords = [str(name) for name in kwargs.context or ()]
        if len(names) < args.num_children:
            names = [f"arg_{i}" for i in range(args.num_children)]
        positional = names[: args.num_children]
        plain = args.num_leaves == args.num_children and kwargs.num_leaves == kwargs.num_children
        leaves = [*positional, *keywords] if plain else [f"leaf_{i}" for i in range(len(self.inputs))]
        for name, leaf in zip(leaves, self.inputs):
            place = _placeholder(graph, name, leaf if isinstance(leaf, Node) else None)
            if isinstance(leaf, Node):
                held.setdefault(leaf, place)
        graph.set_codegen(CallCode(positional, keywords, self.signature.in_spec, self.signature.out_spec))

    def end(self, graph: Graph, value: Any) -> None:
        graph.output(tuple(value(leaf) if isinstance(leaf, Node) else leaf for leaf in self.outputs))

    def call(self, graph: Graph, name: str, values: dict[Node, Node], value: Any) -> None:
        leaves = iter([value(leaf) if isinstance(leaf, Node) else leaf for leaf in self.inputs])
        args, kwargs = self.signature.in_spec.children_specs
        positional = tuple(_assembled(graph, spec, leaves) for spec in args.children_specs)
        named = {key: _assembled(graph, spec, leaves) for key, spec in zip(kwargs.context or (), kwargs.children_specs)}
        node = graph.call_module(name, positional, named)
        if self.signature.out_spec.is_leaf():
            results = [node]
        else:
            node.meta["val"] = [leaf.meta.get("val") if isinstance(leaf, Node) else leaf for leaf in self.outputs]
            flat = graph.call_function(_Leaves(self.signature.out_spec), (node,))
            flat.meta.update(node.meta)
            results = [graph.call_function(operator.getitem, (flat, i)) for i in range(len(self.outputs))]
        for leaf, result in zip(self.outputs, results):
            if isinstance(leaf, Node):
                values[leaf] = result
                result.meta.update(_described(leaf))


def _described(node: Node) -> dict[str, Any]:
    return {"val": node.meta["val"]} if "val" in node.meta else {}


def _placeholder(graph: Graph, name: str, node: Node | None) -> Node:
    place = graph.placeholder(name)
    if node is not None:
        place.meta.update(_described(node))
    return place


_PLAIN = (tuple, list, dict)


def _assembled(graph: Graph, spec: Any, leaves: Any) -> Any:
    """An argument of a call, of leaves that come next; containers of other classes are made by a node."""
    if spec.is_leaf():
        return next(leaves)
    if _is_plain(spec):
        return pytree.tree_unflatten([next(leaves) for _ in range(spec.num_leaves)], spec)
    return graph.call_function(_Assemble(spec), tuple(next(leaves) for _ in range(spec.num_leaves)))


def _is_plain(spec: Any) -> bool:
    return spec.is_leaf() or (spec.type in _PLAIN and all(_is_plain(child) for child in spec.children_specs))


class _Assemble:
    """Makes a value of its leaves."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.__name__, self.__module__ = "assemble", "unflattened"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Assemble) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __call__(self, *leaves: Any) -> Any:
        return pytree.tree_unflatten(list(leaves), self.spec)


class _Leaves:
    """The leaves of what a module returned."""

    def __init__(self, spec: Any) -> None:
        self.spec = spec
        self.__name__, self.__module__ = "leaves", "unflattened"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Leaves) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __call__(self, value: Any) -> Any:
        leaves, spec = pytree.tree_flatten(value)
        if spec != self.spec:
            raise ValueError(f"[unflatten] expected a result of the structure {self.spec}, got {spec}")
        return leaves


def _same_module(first: Any, second: Any) -> bool:
    """Whether two modules compute the same of their inputs and attributes."""
    one, other = first.graph, second.graph
    if one is None or other is None or len(one.nodes) != len(other.nodes):
        return False
    if isinstance(one._codegen, CallCode) != isinstance(other._codegen, CallCode):
        return False
    places: dict[Node, Node] = {}
    for a, b in zip(one.nodes, other.nodes):
        places[a] = b
        if a.op != b.op or not _same_target(a, b, first, second):
            return False
        args, kwargs = map_arg(a.args, places.__getitem__), map_arg(a.kwargs, places.__getitem__)
        if args != b.args or kwargs != b.kwargs:
            return False
    return True


def _same_target(a: Node, b: Node, first: Any, second: Any) -> bool:
    if a.op == "placeholder" or a.target == b.target:
        return True
    if a.op != "call_module" or str(a.target).partition("@")[0] != str(b.target).partition("@")[0]:
        return False
    return _same_module(first.get_submodule(str(a.target)), second.get_submodule(str(b.target)))
