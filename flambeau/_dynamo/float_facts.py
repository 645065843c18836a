"""What a program decides by floats that are inputs: `if s > 0`, `int(s)`. The decision is guarded, not the float.

A float from outside, or what is computed from one, is a function of one source. A fact about it is checked by applying that
function again.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau._dynamo.source import Source
    from flambeau._dynamo.traced import TracedNumber

# Functions that make a float of floats.
MATH = frozenset(
    f
    for f in vars(math).values()
    if callable(f) and f not in (math.floor, math.ceil, math.trunc, math.isnan, math.isinf, math.isfinite, math.isclose)
)


@dataclass(frozen=True)
class _Same:
    def __call__(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Computed:
    """A function of a value: of some arguments, which are functions of it or constants."""

    function: Callable[..., Any]
    arguments: tuple[tuple[Callable[[Any], Any] | None, Any], ...]

    def __call__(self, value: Any) -> Any:
        return self.function(*[constant if of is None else of(value) for of, constant in self.arguments])

    def __hash__(self) -> int:
        return hash((self.function, len(self.arguments)))

    def __eq__(self, other: object) -> bool:
        # 1 and True, 0.0 and -0.0 are different arguments.
        return (
            type(other) is Computed
            and self.function is other.function
            and repr(self.arguments) == repr(other.arguments)
        )


def origin(number: TracedNumber) -> tuple[Source, Callable[[Any], Any]] | None:
    """The source that a number is computed from, and how; None where there are several, or others."""
    if number.unknown or number.of_sizes is not None:
        return None
    return (number.source, _Same()) if number.source in number.roots else number.computed


def computed(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Source, Callable[[Any], Any]] | None:
    """The origin of what a function makes of numbers."""
    from flambeau._dynamo.traced import TracedNumber

    origins = [origin(a) if isinstance(a, TracedNumber) else None for a in args]
    sources = {known[0] for known in origins if known is not None}
    plain = all(type(a) in (int, float, bool) or known is not None for a, known in zip(args, origins))
    if len(sources) != 1 or not plain:
        return None
    parts = tuple((None, a) if known is None else (known[1], None) for a, known in zip(args, origins))
    return next(iter(sources)), Computed(function, parts)


def decide(function: Callable[..., Any], args: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any] | None:
    """What a function decides by numbers, guarded to be so; None where that cannot be said of one source."""
    known = computed(function, args)
    if known is None:
        return None
    try:
        decision = function(*values)
    except (ArithmeticError, ValueError):
        return None
    source, again = known
    source.apply(again).check("equals", decision)
    return (decision,)


def is_math(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function of the standard library makes a float of floats, some of which are inputs."""
    from flambeau._dynamo.traced import TracedNumber

    traced = [a for a in args if type(a) is TracedNumber]
    if not traced or function not in MATH or any(a.unknown or a.of_sizes is not None for a in traced):
        return False
    if not all(type(a) in (TracedNumber, int, float) for a in args):
        return False
    try:
        return type(function(*[a.hint if type(a) is TracedNumber else a for a in args])) is float
    except (ArithmeticError, ValueError, TypeError):
        return False


COMPARISONS = frozenset(getattr(operator, name) for name in "lt le gt ge eq ne".split())
