"""Expressions of op records in StableHLO: an operation of the vocabulary is one of the dialect's, or made of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau.ops import expr as e
from flambeau.ops.expr import Expr

__all__ = ["COMPARISONS", "OPERATIONS", "composed"]

# By name: the operation of the dialect for floating point numbers and integers.
OPERATIONS = {
    "add": "stablehlo.add", "sub": "stablehlo.subtract", "mul": "stablehlo.multiply", "div": "stablehlo.divide",
    "neg": "stablehlo.negate", "exp": "stablehlo.exponential", "expm1": "stablehlo.exponential_minus_one",
    "log": "stablehlo.log", "log1p": "stablehlo.log_plus_one", "sqrt": "stablehlo.sqrt", "rsqrt": "stablehlo.rsqrt",
    "tanh": "stablehlo.tanh", "sin": "stablehlo.sine", "cos": "stablehlo.cosine", "floor": "stablehlo.floor",
    "ceil": "stablehlo.ceil", "round": "stablehlo.round_nearest_even", "abs": "stablehlo.abs", "pow": "stablehlo.power",
    "ipow": "stablehlo.power", "sigmoid": "stablehlo.logistic", "atan2": "stablehlo.atan2", "maximum": "stablehlo.maximum",
    "minimum": "stablehlo.minimum", "bitand": "stablehlo.and", "bitor": "stablehlo.or", "bitxor": "stablehlo.xor",
    "bitnot": "stablehlo.not", "lshift": "stablehlo.shift_left", "rshift": "stablehlo.shift_right_arithmetic",
    "land": "stablehlo.and", "lor": "stablehlo.or", "lnot": "stablehlo.not", "fmod": "stablehlo.remainder",
    "erf": "chlo.erf", "erfc": "chlo.erfc", "lgamma": "chlo.lgamma", "digamma": "chlo.digamma", "sinh": "chlo.sinh",
    "cosh": "chlo.cosh", "asin": "chlo.asin", "acos": "chlo.acos", "atan": "chlo.atan", "asinh": "chlo.asinh",
    "acosh": "chlo.acosh", "atanh": "chlo.atanh", "erfinv": "chlo.erf_inv", "tan": "chlo.tan", "nextafter": "chlo.next_after",
    "isfinite": "stablehlo.is_finite",
}  # fmt: skip
COMPARISONS = {"lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "eq": "EQ", "ne": "NE"}
CONDITIONS = frozenset((*COMPARISONS, "land", "lor", "lnot", "isfinite", "isinf"))


def _trunc(x: Expr) -> Expr:
    return e.where(x < 0, e.ceil(x), e.floor(x))


def _remainder(a: Expr, b: Expr) -> Expr:
    r = e.call("fmod", a, b)
    return e.where(e.land(e.call("ne", r, 0), e.call("ne", r < 0, b < 0)), r + b, r)


def _trunc_divide(a: Expr, b: Expr, real: bool) -> Expr:
    return _trunc(a / b) if real else a / b


def _floor_divide(a: Expr, b: Expr, real: bool) -> Expr:
    if real:
        return e.floor(a / b)
    quotient = a / b
    return e.where(e.land(e.call("ne", quotient * b, a), e.call("ne", a < 0, b < 0)), quotient - 1, quotient)


# What the dialect has no operation for; functions of the operands, and of whether they are real numbers.
_COMPOSED: dict[str, Callable[..., Any]] = {
    "gelu_erf": lambda x, real: x * 0.5 * (e.erf(x * math.sqrt(0.5)) + 1.0),
    "gelu_tanh": lambda x, real: x * 0.5 * (e.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0),
    "silu": lambda x, real: x * e.sigmoid(x),
    "mish": lambda x, real: x * e.tanh(e.where(x > 30.0, x, e.log1p(e.exp(x)))),
    "exp2": lambda x, real: e.exp(x * math.log(2)), "log2": lambda x, real: e.log(x) * (1 / math.log(2)),
    "log10": lambda x, real: e.log(x) * (1 / math.log(10)), "trunc": lambda x, real: _trunc(x) if real else x,
    "remainder": lambda a, b, real: _remainder(a, b), "trunc_divide": _trunc_divide, "floor_divide": _floor_divide,
    "fmax": lambda a, b, real: e.where(e.isnan(a), b, e.where(e.isnan(b), a, e.maximum(a, b))),
    "fmin": lambda a, b, real: e.where(e.isnan(a), b, e.where(e.isnan(b), a, e.minimum(a, b))),
    "hypot": lambda a, b, real: e.sqrt(a * a + b * b),
    "copysign": lambda a, b, real: e.where(e.call("lt", b, 0.0), -e.abs(a), e.abs(a)),
    "isinf": lambda x, real: e.call("eq", e.abs(x), math.inf),
    "xlogy": lambda x, y, real: e.where(e.isnan(y), y, e.where(e.call("eq", x, 0.0), 0.0, x * e.log(y))),
    "xlog1py": lambda x, y, real: e.where(e.isnan(y), y, e.where(e.call("eq", x, 0.0), 0.0, x * e.log1p(y))),
    "logaddexp": lambda a, b, real: e.maximum(a, b) + e.log1p(e.exp(e.minimum(a, b) - e.maximum(a, b))),
    "ndtr": lambda x, real: e.erfc(x * -math.sqrt(0.5)) * 0.5,
    "sinc": lambda x, real: e.where(e.call("eq", x, 0.0), 1.0, e.sin(x * math.pi) / (x * math.pi)),
    "entr": lambda x, real: e.where(x > 0.0, -x * e.log(x), e.where(e.call("eq", x, 0.0), 0.0, -math.inf)),
    "real": lambda x, real: x, "conj": lambda x, real: x, "imag": lambda x, real: x * 0,
}  # fmt: skip


def composed(op: str, args: list[Expr], real: bool) -> Expr | None:
    """The operation as an expression of others; None where it is one of the dialect's or nobody's."""
    make = _COMPOSED.get(op)
    if not real and op in ("floor", "ceil", "round", "trunc"):
        return args[0]
    return e.lift(make(*args, real)) if make is not None else None
