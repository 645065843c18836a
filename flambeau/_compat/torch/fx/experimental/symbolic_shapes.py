"""Symbolic sizes under the names PyTorch has for them; they live in `flambeau.ops.symbolic`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from flambeau._compat import absent
from flambeau._dynamo.exc import ConstraintViolationError as ConstraintViolationError
from flambeau.ops.symbolic import DataDependentOutput, ShapeEnv, SymBool, SymFloat, SymInt, hint_of

GuardOnDataDependentSymNode = DataDependentOutput

__all__ = [
    "DimDynamic", "GuardOnDataDependentSymNode", "RelaxedUnspecConstraint", "ShapeEnv", "StatelessSymbolicContext",
    "StrictMinMaxConstraint", "check_consistent", "constrain_range", "constrain_unify", "definitely_false",
    "definitely_true", "expect_true", "free_symbols", "free_unbacked_symbols", "guard_bool", "guard_float",
    "guard_int", "guard_or_false", "guard_or_true", "guard_scalar", "guard_size_oblivious", "has_free_symbols",
    "has_free_unbacked_symbols", "has_static_value", "has_symbolic_sizes_strides", "hint_int", "is_concrete_bool",
    "is_concrete_float", "is_concrete_int", "is_symbolic", "optimization_hint", "size_hint", "statically_known_false",
    "statically_known_true", "sym_and", "sym_eq", "sym_or",
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


def guard_float(value: Any) -> float:
    return float(value)


def guard_scalar(value: Any) -> Any:
    """A symbolic number as a plain one, by a guard."""
    if isinstance(value, (bool, SymBool)):
        return bool(value)
    return int(value) if isinstance(value, (int, SymInt)) else float(value)


def expect_true(value: Any, skip: int = 0) -> bool:
    """Assume that a condition holds; for what depends on data, from now on."""
    if isinstance(value, SymBool):
        value.env.check(value)
        return True
    return bool(value)


def constrain_range(value: Any, *, min: int | None, max: int | None = None) -> None:
    """Assume bounds of a size."""
    if min is not None:
        expect_true(value >= min)
    if max is not None:
        expect_true(value <= max)


def constrain_unify(a: Any, b: Any) -> None:
    """Assume that two sizes are equal."""
    expect_true(a == b)


def check_consistent(new: Any, old: Any) -> None:
    """Check that tensors have the same shape, or that numbers are equal."""
    if hasattr(new, "shape"):
        if new.dim() != old.dim():
            raise RuntimeError(f"[check_consistent] expected {old.dim()} dimensions, got {new.dim()}")
        for a, b in zip(new.shape, old.shape):
            expect_true(a == b)
    elif not isinstance(new, bool):
        expect_true(new == old)


def sym_and(first: Any, *others: Any) -> Any:
    """Whether all conditions hold, as a condition."""
    for other in others:
        first = first & other
    return first


def sym_or(first: Any, *others: Any) -> Any:
    """Whether one of the conditions holds, as a condition."""
    for other in others:
        first = first | other
    return first


guard_size_oblivious = guard_bool


def guard_or_false(value: Any) -> bool:
    """The condition's value, or False when it depends on data."""
    try:
        return bool(value)
    except DataDependentOutput:
        return False


def guard_or_true(value: Any) -> bool:
    """The condition's value, or True when it depends on data."""
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


def has_free_unbacked_symbols(value: Any) -> bool:
    return bool(free_unbacked_symbols(value))


def has_symbolic_sizes_strides(tensor: Any) -> bool:
    return bool(getattr(tensor, "is_symbolic", False))


def has_static_value(value: Any) -> bool:
    """Whether a number is known without asking for a guard."""
    if isinstance(value, SymBool):
        return value.env.statically_known(value.condition) is not None
    return not is_symbolic(value) or (isinstance(value, SymInt) and is_concrete_int(value))


def is_concrete_float(value: Any) -> bool:
    return not isinstance(value, SymFloat)


def sym_eq(a: Any, b: Any) -> Any:
    """Equality of sizes or of sequences of them."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(bool(sym_eq(x, y)) for x, y in zip(a, b))
    return a == b


__getattr__ = absent.names_of(__name__)
