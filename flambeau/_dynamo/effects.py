"""What a captured program does to the world outside, kept until the artifact replays it: stores, and random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from flambeau._dynamo.source import Source


class Overlay:
    """Pending stores into an outside object: attributes of an instance, names of globals, a cell's contents."""

    __slots__ = ("target", "source", "values")

    def __init__(self, target: Any, source: Source) -> None:
        self.target = target
        self.source = source
        self.values: dict[str, Any] = {}


class Shadow:
    """A copy of an outside container, with what it held at first."""

    __slots__ = ("source", "real", "value", "before")

    def __init__(self, source: Source, real: Any, value: Any) -> None:
        self.source = source
        self.real = real
        self.value = value
        self.before: Any = None

    def remember(self) -> None:
        self.before = list(self.value.items()) if isinstance(self.value, dict) else list(self.value)

    def changed(self) -> bool:
        now = list(self.value.items()) if isinstance(self.value, dict) else list(self.value)
        if len(now) != len(self.before):
            return True
        if isinstance(self.value, dict):
            return any(a[0] is not b[0] or a[1] is not b[1] for a, b in zip(now, self.before))
        if isinstance(self.value, set):
            return {id(v) for v in now} != {id(v) for v in self.before}
        return any(a is not b for a, b in zip(now, self.before))


class Draw(NamedTuple):
    """A random number that the artifact draws before it runs the graph."""

    owner: Source  # the generator
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: Source  # the place that the number is known by
