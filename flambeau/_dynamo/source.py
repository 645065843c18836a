"""Where values come from: a tree of places reachable when a compiled function is called.

The interpreter loads every outside value through a `Source`. A source knows how the value is reached (an argument, the
item of a dict, an attribute ...) and carries the checks that must hold for the captured graph to be valid. The same tree
is handed to the native guard evaluator, and prints as the Python expression that fetches the value again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Names:
    """Constants that generated code refers to, by name; one table for each artifact."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        self._by_id: dict[int, str] = {}

    def add(self, value: Any, hint: str = "c") -> str:
        name = self._by_id.get(id(value))
        if name is None:
            name = f"_{hint}{len(self.table)}"
            self.table[name] = value
            self._by_id[id(value)] = name
        return name

    def bind(self, name: str, value: Any) -> str:
        self.table[name] = value
        return name


# How a child is reached from its parent. The native evaluator knows these by name.
ARGUMENT = "argument"  # key: index of the flat argument
CONSTANT = "constant"  # key: the object itself
ATTRIBUTE = "attribute"  # key: name; the ordinary attribute protocol
ITEM = "item"  # key: index into a list or tuple
DICT_ITEM = "dict_item"  # key: key of a dict
CELL = "cell"  # contents of a closure cell
TYPE = "type"  # the class of the object
TYPE_ATTRIBUTE = "type_attribute"  # key: name; raw lookup along the class's bases
INSTANCE = "instance"  # key: name; the instance's own dict only
TENSOR_GRAD = "tensor_grad"
DRAW = "draw"  # a random number; key: how many were drawn before
APPLY = "apply"  # what a function makes of the object; key: the function


_SHORT = frozenset(kind.__repr__ for kind in (str, int, bool, float, bytes, tuple, type(None), type))


class Source:
    """A place, its children, and the checks on the value found there."""

    __slots__ = ("parent", "kind", "key", "children", "checks", "in_module", "_words")

    def __init__(self, parent: Source | None, kind: str, key: Any) -> None:
        self.parent = parent
        self.kind = kind
        self.key = key
        self.children: dict[tuple[str, Any], Source] = {}
        self.checks: dict[Any, tuple[Any, ...]] = {}
        self.in_module: bool = parent is not None and parent.in_module
        self._words = ""

    def _child(self, kind: str, key: Any, memo: Any) -> Source:
        child = self.children.get((kind, memo))
        if child is None:
            child = self.children[(kind, memo)] = Source(self, kind, key)
        return child

    def attribute(self, name: str) -> Source:
        return self._child(ATTRIBUTE, name, name)

    def instance(self, name: str) -> Source:
        return self._child(INSTANCE, name, name)

    def item(self, index: int) -> Source:
        return self._child(ITEM, index, index)

    def dict_item(self, key: Any) -> Source:
        # Keys that compare equal may differ in type (1, True, 1.0): all find the same item.
        return self._child(DICT_ITEM, key, key)

    def cell(self) -> Source:
        return self._child(CELL, None, None)

    def type(self) -> Source:
        return self._child(TYPE, None, None)

    def type_attribute(self, name: str) -> Source:
        return self._child(TYPE_ATTRIBUTE, name, name)

    def grad(self) -> Source:
        return self._child(TENSOR_GRAD, None, None)

    def apply(self, function: Callable[[Any], Any]) -> Source:
        return self._child(APPLY, function, function)

    def check(self, kind: str, *values: Any, memo: Any = None) -> None:
        """Asks for a fact about the value; asking twice is asking once."""
        self.checks.setdefault((kind, memo), (kind, *values))

    def expression(self, names: Names) -> str:
        """Python code that fetches the value inside the artifact."""
        if self.kind == ARGUMENT:
            return f"a{self.key}"
        if self.kind == CONSTANT:
            return names.add(self.key, "o")
        assert self.parent is not None
        return self.access(self.parent.expression(names), names)

    def access(self, base: str, names: Names) -> str:
        """Python code that fetches the value from its parent."""
        if self.kind in (ATTRIBUTE, INSTANCE):
            return f"{base}.{self.key}" if self.key.isidentifier() else f"getattr({base}, {self.key!r})"
        if self.kind == ITEM:
            return f"{base}[{self.key}]"
        if self.kind == DICT_ITEM:
            key = repr(self.key) if type(self.key) in (str, int, bool) else names.add(self.key, "k")
            return f"{base}[{key}]"
        if self.kind == CELL:
            return f"{base}.cell_contents"
        if self.kind == TYPE:
            return f"type({base})"
        if self.kind == TENSOR_GRAD:
            return f"{base}.grad"
        if self.kind == APPLY:
            return f"{names.add(self.key, 'f')}({base})"
        return f"lookup_type({base}, {self.key!r})"

    def describe(self) -> str:
        """The place in words a user reads in a log."""
        if not self._words:
            self._words = self._describe()
        return self._words

    def _describe(self) -> str:
        if self.kind == ARGUMENT:
            return f"argument {self.key}"
        if self.kind == DRAW:
            return f"random number {self.key}"
        if self.kind == CONSTANT:
            value = self.key
            if isinstance(value, dict):
                return f"globals of {value.get('__name__', '?')}"
            return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__name__
        assert self.parent is not None
        base = self.parent.describe()
        if self.kind in (ATTRIBUTE, TYPE_ATTRIBUTE, INSTANCE):
            return f"{base}.{self.key}"
        if self.kind == CELL:
            return f"closure of {base}"
        if self.kind == APPLY:
            return base
        if self.kind in (ITEM, DICT_ITEM):
            # Keys may be tensors, whose text would be their values.
            return (
                f"{base}[{self.key!r}]" if type(self.key).__repr__ in _SHORT else f"{base}[{type(self.key).__name__}]"
            )
        return f"{self.kind}({base})"

    def walk(self) -> Iterator[Source]:
        yield self
        for child in self.children.values():
            yield from child.walk()

    def __repr__(self) -> str:
        return f"Source({self.describe()})"


class Sources:
    """The roots of the tree for one capture."""

    def __init__(self) -> None:
        self.arguments: dict[int, Source] = {}
        self.constants: dict[int, Source] = {}

    def argument(self, index: int) -> Source:
        if index not in self.arguments:
            self.arguments[index] = Source(None, ARGUMENT, index)
        return self.arguments[index]

    def constant(self, value: Any) -> Source:
        if id(value) not in self.constants:
            self.constants[id(value)] = Source(None, CONSTANT, value)
        return self.constants[id(value)]

    def forget(self) -> None:
        """Lets go of the values that places and checks refer to, in all of the tree."""
        pending = self.roots()
        while pending:
            source = pending.pop()
            pending += source.children.values()
            source.children.clear()
            source.checks.clear()
            source.parent = source.key = None
        self.arguments.clear()
        self.constants.clear()

    def roots(self) -> list[Source]:
        return [*self.arguments.values(), *self.constants.values()]
