"""Symbolic sizes under the names PyTorch has for them; they live in `flambeau.ops.symbolic`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from flambeau.ops.symbolic import DataDependentOutput, ShapeEnv, SymBool, SymFloat, SymInt, hint_of

GuardOnDataDependentSymNode = DataDependentOutput

__all__ = [
    "DimDynamic", "GuardOnDataDependentSymNode", "RelaxedUnspecConstraint", "ShapeEnv", "StatelessSymbolicContext",
    "StrictMinMaxConstraint", "free_unbacked_symbols", "optimization_hint", "size_hint", "definitely_false", "definitely_true", "free_symbols", "guard_bool",
    "guard_int", "guard_or_false", "guard_or_true", "guard_size_oblivious", "has_free_symbols", "hint_int", "is_concrete_bool",
    "is_concrete_int", "is_symbolic", "statically_known_false", "statically_known_true", "sym_eq",
]  # fmt: skip


def is_symbolic(value: Any) -> bool:
    return isinstance(value, (SymInt, SymFloat, SymBool))


def is_concrete_int(value: Any) -> bool:
    return not is_symbolic(value) or value.env.simplify(value.expr).is_constant


def is_concrete_bool(value: Any) -> bool:
    return isinstance(value, bool)


def hint_int(value: Any, fallback: int | None = None) -> int:
    """The number a size has in the example."""
    if is_symbolic(value) and value.hint is None and fallback is not None:
        return fallback
    return int(hint_of(value))


size_hint = optimization_hint = hint_int


class DimDynamic(enum.Enum):
    """What becomes of an input's size in a trace: a symbol, or the number it has."""

    DYNAMIC = 0
    DUCK = 1
    STATIC = 2
    SIZE_LIKE_UNBACKED = 3
    INFER_STRIDE = 4
    OBLIVIOUS_SIZE = 5
    UNBACKED = 6


@dataclass(frozen=True)
class RelaxedUnspecConstraint:
    """A size that must stay a symbol."""

    warn_only: bool = False


@dataclass(frozen=True)
class StrictMinMaxConstraint:
    """A size that must stay a symbol, within bounds."""

    warn_only: bool = False
    vr: Any = None


@dataclass
class StatelessSymbolicContext:
    """What becomes of each size of an input: `FakeTensorMode.from_tensor` takes it as symbolic_context."""

    dynamic_sizes: list[DimDynamic] = field(default_factory=list)
    constraint_sizes: list[Any] = field(default_factory=list)
    dynamic_strides: list[DimDynamic] = field(default_factory=list)

    @property
    def symbolic_dims(self) -> list[int]:
        return [d for d, kind in enumerate(self.dynamic_sizes) if kind is not DimDynamic.STATIC]


def statically_known_true(value: Any) -> bool:
    """Whether a condition holds for all sizes that the guards admit; asks for no new guard."""
    return bool(value.env.statically_known(value.condition)) if isinstance(value, SymBool) else bool(value)


def statically_known_false(value: Any) -> bool:
    return value.env.statically_known(value.condition) is False if isinstance(value, SymBool) else not value


definitely_true, definitely_false = statically_known_true, statically_known_false


def guard_bool(value: Any) -> bool:
    return bool(value)


def guard_int(value: Any) -> int:
    return int(value)


guard_size_oblivious = guard_bool


def guard_or_false(value: Any) -> bool:
    """The condition's truth, or False when it depends on data."""
    try:
        return bool(value)
    except DataDependentOutput:
        return False


def guard_or_true(value: Any) -> bool:
    """The condition's truth, or True when it depends on data."""
    try:
        return bool(value)
    except DataDependentOutput:
        return True


def free_symbols(value: Any) -> set[Any]:
    """The symbols in a size, a tensor's sizes, or a structure of them."""
    if isinstance(value, SymInt):
        return set(value.env.simplify(value.expr).symbols)
    if isinstance(value, (list, tuple)):
        return {symbol for item in value for symbol in free_symbols(item)}
    return free_symbols(tuple(value.shape)) if hasattr(value, "shape") else set()


def free_unbacked_symbols(value: Any) -> set[Any]:
    """The symbols among them whose value only the data decides."""
    return {symbol for symbol in free_symbols(value) if symbol.name.startswith("u")}


def has_free_symbols(value: Any) -> bool:
    return bool(free_symbols(value))


def sym_eq(a: Any, b: Any) -> Any:
    """Equality of sizes or of sequences of them."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(bool(sym_eq(x, y)) for x, y in zip(a, b))
    return a == b


def __getattr__(name: str) -> Any:
    from flambeau import _absent

    return _absent.attribute(__name__, name)
