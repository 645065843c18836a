"""Calls of submodules in a trace: what a submodule computed becomes its own method, and a call of it.

A trace is recorded as one graph whose nodes know the calls of submodules they stand in. `outline` takes the nodes of each call out into a method of the submodule's
type. Values from outside become arguments, values that are used outside become results, parameters and constants are read inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.jit import _types as T
from flambeau.jit._functions import Function
from flambeau.jit._ir import Graph, Node, Value
from flambeau.jit._passes import _copy_node
from flambeau.jit._schemas import Argument, Signature

Path = tuple[str, ...]


class Call(NamedTuple):
    """One call of a submodule: where it lies, and its type."""

    path: Path
    kind: T.ClassType


class Scopes:
    """The calls that are being recorded; installed as hooks of all modules while a trace runs."""

    def __init__(self, graph: Graph, paths: dict[int, tuple[Path, T.JitType]], root: Any) -> None:
        self.graph, self.paths, self.root = graph, paths, root
        self.calls: list[Call] = []
        self.stack: list[tuple[Any, str]] = []

    def enter(self, module: Any, args: Any) -> None:
        path = self.paths.get(id(module))
        if path is None or module is self.root or "_script_type" in module.__dict__:
            return
        assert isinstance(path[1], T.ClassType)
        self.stack.append((module, self.graph.scope))
        self.graph.scope = f"{self.graph.scope}/{len(self.calls)}"
        self.calls.append(Call(path[0], path[1]))

    def leave(self, module: Any, args: Any, result: Any) -> None:
        if self.stack and self.stack[-1][0] is module:
            self.graph.scope = self.stack.pop()[1]

    def __enter__(self) -> None:
        from flambeau.nn.modules import global_hooks

        self.handles = [
            global_hooks.register_module_forward_pre_hook(self.enter),
            global_hooks.register_module_forward_hook(self.leave, always_call=True),
        ]

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()


def outline(graph: Graph, calls: list[Call], owner: T.ClassType) -> Graph:
    """The graph with calls of submodules; their methods are added to their types."""
    if not any(node._scope for node in graph._nodes):
        return graph
    body = _Body(calls, Call((), owner), Graph())
    for value in graph._param._outputs:
        body.values[id(value)] = twin = body.graph.addInput(value.debugName()).setType(value.type())
        if value is graph._param._outputs[0]:
            body.owner = twin
    body.fill(list(graph._nodes), 1)
    for value in graph._return._inputs:
        body.graph.registerOutput(body.get(value))
    return body.graph


class _Body:
    """The graph of one method while it is filled."""

    def __init__(self, calls: list[Call], call: Call, graph: Graph) -> None:
        self.calls, self.call, self.graph = calls, call, graph
        self.values: dict[int, Value] = {}
        self.getters: dict[Path, Value] = {}
        self.lifted: list[Value] = []  # values of the caller that became arguments
        self.owner: Value | None = None

    def fill(self, nodes: list[Node], depth: int) -> None:
        """Copy nodes; those of one inner call become a call."""
        at = 0
        while at < len(nodes):
            node = nodes[at]
            if node._kind == "prim::Constant" or _attribute_path(node) is not None:
                at += 1
                continue
            parts = node._scope.split("/")
            if len(parts) <= depth:
                self.copy(node)
                at += 1
                continue
            end = at
            while end < len(nodes) and nodes[end]._scope.split("/")[depth : depth + 1] == [parts[depth]]:
                end += 1
            self.insert_call(nodes[at:end], self.calls[int(parts[depth])], depth + 1)
            at = end

    def copy(self, node: Node) -> None:
        for value in _captured(node):
            self.values[id(value)] = self.get(value)
        twin = _copy_node(node, self.graph, self.values)
        twin._scope = ""
        self.graph.insertNode(twin)

    def insert_call(self, nodes: list[Node], call: Call, depth: int) -> None:
        inside = {id(inner) for node in nodes for inner in _walk(node)}
        results = [
            output
            for node in nodes
            for output in node._outputs
            if node._kind != "prim::Constant"
            and _attribute_path(node) is None
            and any(id(use.user) not in inside for use in output._uses)
        ]
        body = _Body(self.calls, call, Graph())
        body.owner = body.graph.addInput("self").setType(call.kind)
        body.fill(nodes, depth)
        outputs = [body.get(value) for value in results]
        returned = body.returned(outputs)
        method = _method_name(call.kind)
        function = Function.of_graph(f"{call.kind.name}.{method}", body.graph, _signature(body.graph, method, returned))
        function.is_traced = True
        call.kind.methods[method] = function
        inputs = [self.path(call.path), *[self.get(value) for value in body.lifted]]
        call_node = self.graph.insert("prim::CallMethod", inputs, [returned])
        call_node.attributes["name"] = ("s", method)
        call_node.call = function
        self.bind(results, call_node._outputs[0])

    def returned(self, outputs: list[Value]) -> T.JitType:
        """Register what the method returns: one value, or a tuple of several."""
        if len(outputs) == 1:
            self.graph.registerOutput(outputs[0])
            return _plain(outputs[0].type())
        if not outputs:
            self.graph.registerOutput(self.graph.insertConstant(None, T.NONE))
            return T.NONE
        kind = T.TupleType(_plain(value.type()) for value in outputs)
        self.graph.registerOutput(self.graph.insert("prim::TupleConstruct", outputs, [kind])._outputs[0])
        return kind

    def bind(self, results: list[Value], output: Value) -> None:
        if len(results) == 1:
            self.values[id(results[0])] = output
            if results[0].hasDebugName():
                output.setDebugName(results[0].debugName())
        elif results:
            unpacked = self.graph.insert("prim::TupleUnpack", [output], [_plain(v.type()) for v in results])
            for value, part in zip(results, unpacked._outputs):
                self.values[id(value)] = part

    def get(self, value: Value) -> Value:
        """A value of the recorded graph in this one."""
        known = self.values.get(id(value))
        if known is not None:
            return known
        node = value.node()
        names = _attribute_path(node)
        if node._kind == "prim::Constant":
            twin = _copy_node(node, self.graph, {})
            twin._scope = ""
            known = self.graph.insertNode(twin)._outputs[0]
        elif names is not None and names[: len(self.call.path)] == self.call.path and len(names) > len(self.call.path):
            known = self.path(names)
        else:
            self.lifted.append(value)
            base = value.debugName().partition(".")[0]
            name = base if base.isidentifier() else f"argument_{len(self.lifted)}"
            known = self.graph.addInput(name).setType(_plain(value.type()))
        self.values[id(value)] = known
        return known

    def path(self, names: Path) -> Value:
        """A submodule, parameter or buffer, read from the method's own module."""
        assert self.owner is not None
        place: Value = self.owner
        for end in range(len(self.call.path) + 1, len(names) + 1):
            key = names[:end]
            if key not in self.getters:
                kind = place.type()
                assert isinstance(kind, T.ClassType)
                node = self.graph.create("prim::GetAttr", [place], 0)
                node.addOutput(kind.attributes[names[end - 1]])
                self.place_getter(node, place)
                node.attributes["name"] = ("s", names[end - 1])
                node._outputs[0].setDebugName(names[end - 1] if names[end - 1].isidentifier() else f"_{names[end - 1]}")
                self.getters[key] = node._outputs[0]
            place = self.getters[key]
        return place

    def place_getter(self, node: Node, owner: Value) -> None:
        """Attributes are read before everything else, each after the module that it belongs to."""
        node.owner = self.graph
        nodes = self.graph._nodes
        nodes.insert(nodes.index(owner.node()) + 1 if owner.node() in nodes else 0, node)


def _walk(node: Node) -> Any:
    yield node
    for block in node._blocks:
        yield block._return
        for inner in block._nodes:
            yield from _walk(inner)


def _captured(node: Node) -> list[Value]:
    """What a node and the blocks in it use and do not make."""
    own = {id(o) for inner in _walk(node) for o in inner._outputs}
    for inner in _walk(node):
        own |= {id(o) for block in inner._blocks for o in block._param._outputs}
    return [value for inner in _walk(node) for value in inner._inputs if id(value) not in own]


def _attribute_path(node: Node) -> Path | None:
    """The names from the module of the trace to an attribute, where a node reads one."""
    names: list[str] = []
    while node._kind == "prim::GetAttr":
        names.append(node.attribute("name"))
        source = node._inputs[0]
        if source.node()._kind == "prim::Param":
            return tuple(reversed(names)) if source is source.node()._outputs[0] else None
        node = source.node()
    return None


def _method_name(kind: T.ClassType) -> str:
    name, count = "forward", 0
    while name in kind.methods:
        count += 1
        name = f"forward{count}"
    return name


def _plain(kind: T.JitType) -> T.JitType:
    return T.TENSOR if isinstance(kind, T.TensorType) else kind


def _signature(graph: Graph, name: str, returned: T.JitType) -> Signature:
    arguments = [Argument(v.debugName().partition(".")[0], _plain(v.type())) for v in graph._param._outputs]
    return Signature(name, "", arguments, [Argument("", returned)])
