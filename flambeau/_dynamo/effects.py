"""What a captured program does to the world outside, kept until the artifact replays it: stores, and random numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from flambeau._dynamo.source import Source
    from flambeau._dynamo.traced import TracedTensor


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


class Printed(NamedTuple):
    """A call that writes text, made after the graph."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(slots=True, frozen=True, eq=False)
class Gradient:
    """The `.grad` of a tensor."""

    tensor: TracedTensor
    before: Any
    now: Any

    @property
    def changed(self) -> bool:
        return self.before is not self.now


@dataclass
class Effects:
    """What the artifact does beside running the graph and storing into outside objects (see `outside.py`)."""

    printed: list[Printed] = field(default_factory=list)
    draws: list[Draw] = field(default_factory=list)  # random numbers, drawn before the graph runs
    grads: dict[int, Gradient] = field(default_factory=dict)  # by id of the tensor
    leaves: list[TracedTensor] = field(default_factory=list)  # made during capture
    retained: list[TracedTensor] = field(default_factory=list)  # tensors with history that keep their gradients
    impure: bool = False  # running the function again instead of the artifact would repeat an effect
