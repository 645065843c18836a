"""Comparisons, the larger and smaller of two, tests of single values, and choice by a mask."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.elementwise.aliases import alias
from flambeau.ops.record import Expression, Scalar, composite, node, pointwise, tag

INF = float("inf")


# ---------------------------------------------------------------- comparing

STORED = {"eq": {"b": "equal"}, "ne": {"b": "xor"}}

for name, other_name, classes, expression in (
    ("eq", "", "bifc", lambda x, y: x == y),
    ("ne", "not_equal", "bifc", lambda x, y: x != y),
    ("lt", "less", "bif", lambda x, y: x < y),
    ("le", "less_equal", "bif", lambda x, y: x <= y),
    ("gt", "greater", "bif", lambda x, y: x > y),
    ("ge", "greater_equal", "bif", lambda x, y: x >= y),
):
    record = pointwise(
        f"{name}.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
        expression,
        dtypes=classes,
        result="bool",
        stored=STORED.get(name),
    )
    alias(other_name, record)


@composite()
def isclose(
    self: fl.Tensor, other: fl.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> fl.Tensor:
    if self.dtype != other.dtype:
        raise RuntimeError(f"[isclose] expected two tensors of one dtype, got {self.dtype} and {other.dtype}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"[isclose] expected rtol and atol of at least 0, got {rtol} and {atol}")
    close = fl.eq(self, other)
    inexact = self.is_floating_point() or self.is_complex()
    if equal_nan and inexact:
        close = fl.logical_or(close, fl.logical_and(fl.isnan(self), fl.isnan(other)))
    if rtol == 0 and atol == 0:
        return close
    if not inexact:
        self, other = self.to(fl.get_default_dtype()), other.to(fl.get_default_dtype())
    allowed = fl.add(fl.abs(fl.mul(other, rtol)), atol)
    actual = fl.abs(fl.sub(self, other))
    return fl.logical_or(close, fl.logical_and(fl.isfinite(actual), fl.le(actual, allowed)))


# ---------------------------------------------------------------- larger and smaller

maximum = pointwise(
    "maximum(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.maximum(x, y),
    dtypes="bif",
    inplace=False,
    vjp=lambda g, x, y, out: (
        e.where(x == y, g / 2, e.where(x < y, 0, g)),
        e.where(x == y, g / 2, e.where(x > y, 0, g)),
    ),
)

minimum = pointwise(
    "minimum(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.minimum(x, y),
    dtypes="bif",
    inplace=False,
    vjp=lambda g, x, y, out: (
        e.where(x == y, g / 2, e.where(x > y, 0, g)),
        e.where(x == y, g / 2, e.where(x < y, 0, g)),
    ),
)

for name, record in (("max", maximum), ("min", minimum)):
    pointwise(
        f"{name}.other(Tensor self, Tensor other) -> Tensor",
        record.details["table"],
        dtypes="bif",
        inplace=False,
        vjp=record.vjp,
        alias_of=record.name,
    )


def take_first(condition: e.Expr, g: e.Expr) -> tuple[e.Expr, e.Expr]:
    return (e.where(condition, g, 0), e.where(condition, 0, g))


pointwise(
    "fmax(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.fmax(x, y),
    dtypes="bif",
    inplace=False,
    vjp=lambda g, x, y, out: take_first(e.lor(x >= y, e.isnan(y)), g),
)

pointwise(
    "fmin(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.fmin(x, y),
    dtypes="bif",
    inplace=False,
    vjp=lambda g, x, y, out: take_first(e.lor(x <= y, e.isnan(y)), g),
)


# ---------------------------------------------------------------- testing single values


def classify(
    name: str, real: Expression, cplx: Expression | None = None, *, exact: bool = False, out: bool = False
) -> None:
    """A test of floating-point values; integers and bools all give `exact`."""
    table: dict[str, Expression] = {"b": lambda x: e.lift(exact), "i": lambda x: e.lift(exact), "f": real}
    if cplx is not None:
        table["c"] = cplx
    pointwise(
        f"{name}(Tensor self) -> Tensor",
        table,
        dtypes="bif" if cplx is None else "bifc",
        result="bool",
        inplace=False,
        out=out,
    )


def either(of: Expression, x: e.Expr) -> e.Expr:
    return e.lor(of(e.real(x)), of(e.imag(x)))


classify("isnan", lambda x: x != x, lambda x: x != x)
classify("isinf", lambda x: e.isinf(x), lambda x: either(e.isinf, x))
classify(
    "isfinite",
    lambda x: e.isfinite(x),
    lambda x: e.land(e.isfinite(e.real(x)), e.isfinite(e.imag(x))),
    exact=True,
)
classify("isposinf", lambda x: x == INF, out=True)
classify("isneginf", lambda x: x == -INF, out=True)
classify("isreal", lambda x: e.lift(True), lambda x: e.imag(x) == e.real(0), exact=True)


# ---------------------------------------------------------------- choosing

pointwise(
    "where.self(Tensor condition, Tensor|Scalar self, Tensor|Scalar other) -> Tensor",
    lambda condition, x, y: e.where(condition, x, y),
    dtypes="bifc",
    mask=("condition",),
    method=False,
    inplace=False,
    check="mask_condition",
    vjp=lambda g, condition, x, y, out: (None, e.where(condition, g, 0), e.where(condition, 0, g)),
)


@composite("where.method", function=False)
def where_method(self: fl.Tensor, condition: fl.Tensor, other: fl.Tensor | Scalar) -> fl.Tensor:
    return fl.where(condition, self, other)


@composite("where")
def where_indices(condition: fl.Tensor) -> tuple[fl.Tensor, ...]:
    return fl.nonzero(condition, as_tuple=True)


pointwise(
    "masked_fill(Tensor self, Tensor mask, Tensor|Scalar value) -> Tensor",
    lambda x, mask, value: e.where(mask, value, x),
    dtypes="bifc",
    promote="first",
    mask=("mask",),
    check="scalar_value",
    contiguous=True,
    out=False,
    vjp=lambda g, x, mask, value, out: (e.where(mask, 0, g), None, e.where(mask, g, 0)),
)


# ---------------------------------------------------------------- what passes know of these operators

tag("overwrites", "masked_fill")

tag("chooses", "max min")
tag("comparison", "eq ge greater greater_equal gt isclose le less less_equal lt ne not_equal")
tag("core", "eq ge gt isinf isnan le lt max maximum min minimum ne where")
tag("keeps_zero", "isinf isnan isneginf isposinf")
node("MaximumBackward0", "max.other")
node("MinimumBackward0", "min.other")
