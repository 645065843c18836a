"""Which values of a graph may share memory: sets of values that are joined by what may pass its input on."""

from __future__ import annotations

import re

from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value

_IMMUTABLE = (T.IntType, T.FloatType, T.BoolType, T.ComplexType, T.StringType, T.NoneType, T.DeviceObjType, T.NumberType, T.EnumType, T.FunctionType)  # fmt: skip
_MAKES = frozenset(
    {
        "prim::Constant",
        "aten::clone",
        "prim::ListConstruct",
        "prim::DictConstruct",
        "prim::TupleConstruct",
        "prim::CreateObject",
    }
)
_HOLDS = frozenset({"aten::append", "aten::_set_item", "aten::insert", "aten::extend", "prim::SetAttr"})


class AliasDb:
    """Answers by types and signatures: what a view, a container or a call returns may be what went in."""

    def __init__(self, graph: Graph) -> None:
        self.parents: dict[int, int] = {}
        self.inside: dict[int, list[Value]] = {}
        self.written: list[Value] = []
        self.attributes: dict[tuple[int, str], Value] = {}
        self._block(graph)
        inputs = [v for v in graph._param._outputs if self._mutable(v)]
        for one in inputs:  # two arguments of one type may be the same object
            for other in inputs:
                if type(one.type()) is type(other.type()):
                    self._join(one, other)

    def _find(self, value: Value) -> int:
        place = self.parents.setdefault(id(value), id(value))
        while self.parents[place] != place:
            place = self.parents[place]
        return place

    def _join(self, a: Value, b: Value) -> None:
        self.parents[self._find(a)] = self._find(b)

    @staticmethod
    def _mutable(value: Value) -> bool:
        return not isinstance(value.type(), _IMMUTABLE)

    def _block(self, block: Block) -> None:
        for node in block._nodes:
            for inner in node._blocks:
                self._block(inner)
            self._node(node)

    def _node(self, node: Node) -> None:
        arguments = getattr(node.call, "arguments", ())
        for value, argument in zip(node._inputs, arguments):
            if argument.written and self._mutable(value):
                self.written.append(value)
                for output in filter(self._mutable, node._outputs):  # `x.add_(y)`, `torch.add(x, y, out=z)`
                    self._join(output, value)
        if node._kind == "prim::GetAttr":
            key = (self._find(node._inputs[0]), node.attribute("name"))
            self._join(node._outputs[0], self.attributes.setdefault(key, node._outputs[0]))
            return
        if node._kind in (
            "prim::PythonOp",
            "prim::CallMethod",
            "prim::CallFunction",
        ):  # may do anything to what it is given
            self.written += [v for v in node._inputs if self._mutable(v)]
        if node._kind in ("prim::ListConstruct", "prim::DictConstruct", "prim::TupleConstruct") or node._kind in _HOLDS:
            owner = node._inputs[0] if node._kind in _HOLDS else node._outputs[0]
            self.inside.setdefault(id(owner), []).extend(v for v in node._inputs if v is not owner and self._mutable(v))
        for index, output in enumerate(node._outputs):
            for block in node._blocks:
                if index < len(block._return._inputs):
                    self._join(output, block._return._inputs[index])
            if not self._mutable(output) or not self._passes_on(node):
                continue
            for value in node._inputs:
                if self._mutable(value):
                    self._join(output, value)

    @staticmethod
    def _passes_on(node: Node) -> bool:
        if node._kind in _MAKES or node._blocks:
            return False
        if node._kind.startswith("aten::") and all(isinstance(o.type(), T.TensorType) for o in node._outputs):
            return node._kind.partition("::")[2] in _views()
        return True

    def _contents(self, value: Value, seen: set[int]) -> set[int]:
        contents = {self._find(value)}
        for inner in self.inside.get(id(value), ()):
            if id(inner) not in seen:
                seen.add(id(inner))
                contents |= self._contents(inner, seen)
        return contents

    def may_alias(self, a: Value, b: Value) -> bool:
        return self._mutable(a) and self._mutable(b) and self._find(a) == self._find(b)

    def may_contain_alias(self, a: Value, b: Value) -> bool:
        if not (self._mutable(a) and self._mutable(b)):
            return False
        return bool(self._contents(a, set()) & self._contents(b, set()))

    def leaves(self, graph: Graph, value: Value) -> bool:
        """Whether a result of the graph may be a value, or hold it."""
        return any(self._contents(result, set()) & self._contents(value, set()) for result in graph._return._inputs)

    def has_writers(self, value: Value) -> bool:
        return self._find(value) in {self._find(w) for w in self.written}


def _views() -> frozenset[str]:
    """Names of the operators that return views, by their signatures."""
    from flambeau.jit import _schemas

    if not _VIEWS:
        if not _schemas._lines:
            _schemas._load()
        lines = (line for lines in _schemas._lines.values() for line in lines if _SHARED.search(line))
        _VIEWS.update(line.partition("(")[0].partition(".")[0].partition("::")[2] for line in lines)
    return frozenset(_VIEWS)


_VIEWS: set[str] = set()
_SHARED = re.compile(r"Tensor\(a[^!)]*\)")  # an argument that is not written, or a result that shares its memory

__all__ = ["AliasDb"]
