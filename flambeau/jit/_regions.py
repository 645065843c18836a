"""Straight-line parts of programs are handed to the compiler where the whole is not: between branches on tensors, objects and calls of Python.

The inlined graph of a function is walked block by block. Neighbours that only compute with tensors, numbers and lists of them become one node, whose function is compiled; what
reads attributes or sizes from outside moves in front of it. Numbers that such a part computes from its own tensors end it, so that compiled functions return tensors alone.
"""

from __future__ import annotations

import weakref
from typing import Any

import flambeau
from flambeau._dynamo.breaks import GraphBreakError
from flambeau._inductor.failures import Origin, report
from flambeau.jit import _types as T
from flambeau.jit._fusion import SMALLEST, Unsuitable, computes, drop_round_trips, lift_attributes, stored
from flambeau.jit._ir import Block, Graph, Node, Value
from flambeau.jit._passes import _copy_node, has_effects, inlined

_PLUMBING = frozenset(
    "prim::" + name
    for name in "ListConstruct TupleConstruct TupleUnpack TupleIndex ListUnpack unchecked_cast annotate NumToTensor dtype device min max abs".split()
)

_MAY_WRITE = frozenset({"prim::SetAttr", "prim::PythonOp", "prim::CallMethod", "prim::CallFunction"})


class Part:
    """The function of one straight-line part."""

    def __init__(self, graph: Graph, name: str) -> None:
        from flambeau.jit._functions import Function
        from flambeau.jit._lower import Lowering, lower

        function = Function(name)
        function.graph, function.done = graph, True
        self.name, self.plain = name, lower(function)
        lowering = Lowering(graph, name)
        exec(compile(lowering.text(), f"<part of {name}>", "exec"), lowering.scope)
        self.compiled: Any = flambeau.compile(lowering.scope["_function"], fullgraph=True)

    def __call__(self, *args: Any) -> Any:
        if self.compiled is None:
            return self.plain(*args)
        try:
            return self.compiled(*args)
        except Exception as error:
            result = self.plain(*args)  # an error of the program is raised again here, with its line
            self.compiled = None
            if not isinstance(error, GraphBreakError):
                report(Origin(f"a part of the script {self.name}"), error)
            return result


class Split:
    """A function whose straight-line parts are compiled."""

    def __init__(self, function: Any) -> None:
        from flambeau.jit._functions import Function
        from flambeau.jit._lower import lower

        self.graph = inlined(function.graph)
        drop_round_trips(self.graph)
        self.parts: list[Part] = []
        self.function, self.name = function, function.name
        self.reads = self._lifted()
        self.sources: weakref.WeakKeyDictionary[Any, list[tuple[dict[str, Any], str]]] = weakref.WeakKeyDictionary()
        self._block(self.graph)
        if not self.parts:
            raise Unsuitable
        twin = Function(function.name)
        twin.graph, twin.done = self.graph, True
        self.run = lower(twin)

    def _lifted(self) -> list[tuple[tuple[str, ...], str]]:
        """The attributes that are read once for a call: all of them, where nothing can write to one."""
        inputs = self.graph._param._outputs
        is_method = bool(inputs) and isinstance(inputs[0].type(), T.ClassType)
        if not is_method or any(node._kind in _MAY_WRITE for node in self.graph.walk()):
            return []
        twin = self.graph.copy()
        try:
            reads = list(lift_attributes(twin, True))
        except Unsuitable:
            return []
        self.graph = twin
        return reads

    def __call__(self, args: list[Any]) -> Any:
        if not self.reads:
            return self.run(*args)
        sources = self.sources.get(args[0])
        if sources is None:
            try:
                sources = self.sources[args[0]] = stored(self.reads, args[0])
            except Unsuitable:
                self.function._region = False
                return self.function.run()(*args)
        return self.run(*args, *[table[name] for table, name in sources])

    def retire(self) -> None:
        """Nothing outside refers to the parts."""

    def _block(self, block: Block) -> None:
        run: list[Node] = []
        for node in list(block._nodes):
            if _is_member(node) or (run and node._kind == "prim::GetAttr"):
                run.append(node)
                continue
            self._flush(block, run)
            run = []
            for inner in node._blocks:
                self._block(inner)
        self._flush(block, run)

    def _flush(self, block: Block, run: list[Node]) -> None:
        """Make a part of neighbouring nodes, or several where a number leaves in between."""
        if sum(map(computes, run)) < SMALLEST:
            return
        inside = {id(node) for node in run}
        for index, node in enumerate(run):
            if all(_is_tensor(o) or not _leaves(o, inside) for o in node._outputs) and node._kind != "prim::GetAttr":
                continue
            if not any(id(v.node()) in inside for v in node._inputs):
                block._nodes.remove(node)
                block._nodes.insert(block._nodes.index(run[0]), node) if node is not run[0] else None
                if node is run[0]:
                    block._nodes.insert(block._nodes.index(run[1]), node)
                self._flush(block, [n for n in run if n is not node])
                return
            self._flush(block, run[:index])
            self._flush(block, run[index + 1 :])
            return
        self._outline(block, run, inside)

    def _outline(self, block: Block, run: list[Node], inside: set[int]) -> None:
        graph = Graph()
        values: dict[int, Value] = {}
        inputs: list[Value] = []
        for node in run:
            for value in node._inputs:
                if id(value) in values or id(value.node()) in inside:
                    continue
                if value.node()._kind == "prim::Constant":
                    _append(graph, _copy_node(value.node(), graph, values))
                    continue
                values[id(value)] = graph.addInput().setType(value.type())
                inputs.append(value)
            _append(graph, _copy_node(node, graph, values))
        outputs = [o for node in run for o in node._outputs if _leaves(o, inside)]
        if not outputs:
            return
        for output in outputs:
            graph.registerOutput(values[id(output)])
        part = Part(graph, self.name)
        self.parts.append(part)
        call = self.graph.create("prim::CompiledPart", inputs, 0)
        call.call, call.range = part, None  # errors have the lines of the part
        for output in outputs:
            output.replaceAllUsesWith(call.addOutput(output.type()))
        call.owner = block
        block._nodes.insert(block._nodes.index(run[-1]) + 1, call)
        for node in reversed(run):
            node.destroy()


def _append(graph: Graph, node: Node) -> None:
    node.owner = graph
    graph._nodes.append(node)


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type(), T.TensorType)


def _leaves(value: Value, inside: set[int]) -> bool:
    return any(id(use.user) not in inside for use in value._uses)


def _is_member(node: Node) -> bool:
    """Whether a node only computes, with what compiled functions take."""
    if node._kind == "prim::Constant" or node._kind in _PLUMBING:
        return all(_is_plain(v.type()) for v in (*node._inputs, *node._outputs))
    if not node._kind.startswith("aten::") or not node._outputs or has_effects_on_python(node):
        return False
    if node.isNondeterministic() or not all(_is_plain(v.type()) for v in (*node._inputs, *node._outputs)):
        return False
    if all(_holds_tensors(o.type()) for o in node._outputs):
        return True
    reads_data = any(_holds_tensors(v.type()) for v in node._inputs)
    return not reads_data or node._kind in ("aten::size", "aten::dim")


def has_effects_on_python(node: Node) -> bool:
    """Whether a node writes to something other than a tensor."""
    if not has_effects(node):
        return False
    arguments = getattr(node.call, "arguments", ())
    written = [v for v, a in zip(node._inputs, arguments) if a.written]
    return not written or not all(_is_tensor(v) for v in written)


def _holds_tensors(kind: T.JitType) -> bool:
    return isinstance(kind, T.TensorType) or any(_holds_tensors(part) for part in kind.contained())


def _is_plain(kind: T.JitType) -> bool:
    if isinstance(kind, (T.ListType, T.OptionalType, T.TupleType)):
        return getattr(kind, "name", None) is None and all(_is_plain(part) for part in kind.contained())
    return isinstance(kind, T.TensorType) or kind in (T.INT, T.FLOAT, T.BOOL, T.NONE, T.STRING, T.DEVICE, T.NUMBER)


__all__ = ["Part", "Split"]
