"""Arithmetic: sums, products, quotients and remainders, powers, clamping, interpolation."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.elementwise.aliases import alias, scalar_first
from flambeau.ops.elementwise.math_functions import sqrt
from flambeau.ops.record import Scalar, autocast, composite, node, pointwise, tag


def scaled(alpha: e.Expr, x: e.Expr) -> e.Expr:
    """alpha * x for complex numbers, where 1 * inf must not bring in a NaN."""
    return e.where(alpha == 1, x, alpha * x)


# ---------------------------------------------------------------- sums and products

add = pointwise(
    "add.Tensor(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor",
    {
        "b": lambda x, y, alpha: e.lor(x, e.land(y, alpha != 0)),
        "c": lambda x, y, alpha: x + scaled(alpha, y),
        "": lambda x, y, alpha: x + alpha * y,
    },
    dtypes="bifc",
    check="alpha",
    stored={"i": "add"},
    vjp=lambda g, x, y, alpha, out: (g, g * alpha),
)

sub = pointwise(
    "sub.Tensor(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor",
    {"c": lambda x, y, alpha: x - scaled(alpha, y), "": lambda x, y, alpha: x - alpha * y},
    dtypes="ifc",
    check="subtraction",
    stored={"i": "sub"},
    vjp=lambda g, x, y, alpha, out: (g, -g * alpha),
)
alias("subtract", sub)

rsub = pointwise(
    "rsub.Tensor(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor",
    {"c": lambda x, y, alpha: y - scaled(alpha, x), "": lambda x, y, alpha: y - alpha * x},
    dtypes="ifc",
    check="subtraction",
    method=False,
    inplace=False,
    out=False,
    vjp=lambda g, x, y, alpha, out: (-g * alpha, g),
)

mul = pointwise(
    "mul.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: x * y,
    dtypes="bifc",
    stored={"i": "mul", "b": "and", "c": "mul"},
    vjp=lambda g, x, y, out: (g * y, g * x),
)
alias("multiply", mul)

addcmul = pointwise(
    "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    lambda x, a, b, value: x + value * a * b,
    dtypes="ifc",
    vjp=lambda g, x, a, b, value, out: (g, g * value * b, g * value * a),
)

addcdiv = pointwise(
    "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    lambda x, a, b, value: x + value * a / b,
    check="no_integer_division",
    vjp=lambda g, x, a, b, value, out: (g, g * value / b, -g * value * a / (b * b)),
)

neg = pointwise("neg(Tensor self) -> Tensor", lambda x: -x, dtypes="ifc", check="no_bool", vjp=lambda g, x, out: (-g,))
alias("negative", neg)


@composite()
def positive(self: fl.Tensor) -> fl.Tensor:
    if self.dtype == fl.bool:
        raise RuntimeError("[positive] expected a numeric tensor, got a bool tensor")
    return self


square = pointwise(
    "square(Tensor self) -> Tensor",
    lambda x: x * x,
    dtypes="ifc",
    promote="int",
    vjp=lambda g, x, out: (g * 2 * x,),
)
cube = pointwise(
    "_cube(Tensor self) -> Tensor",
    lambda x: x * x * x,
    dtypes="fc",
    vjp=lambda g, x, out: (g * 3 * x * x,),
)
one = pointwise(
    "_one_like(Tensor self) -> Tensor", lambda x: e.where(x == 0, 1, 1), dtypes="fc", vjp=lambda g, x, out: (0 * g,)
)


# ---------------------------------------------------------------- quotients

div = pointwise(
    "div.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: x / y,
    promote="float",
    vjp=lambda g, x, y, out: (g / y, -g * ((x / y) / y)),  # without the quotient, which may be written to
)
alias("divide true_divide", div)

pointwise(
    "_div_trunc(Tensor self, Tensor|Scalar other) -> Tensor",
    {"i": lambda x, y: e.trunc_divide(x, y), "": lambda x, y: e.trunc(x / y)},
    dtypes="if",
    inplace=False,
    out=False,
    vjp=lambda g, x, y, out: (e.lift(0), e.lift(0)),
)

floor_divide = pointwise(
    "floor_divide(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: e.floor_divide(x, y),
    dtypes="if",
    vjp=lambda g, x, y, out: (e.lift(0), e.lift(0)),
)


@composite("div.Tensor_mode", inplace=True, out=True)
@composite("divide.Tensor_mode", inplace=True, out=True)
def div_mode(self: fl.Tensor, other: fl.Tensor | Scalar, *, rounding_mode: str | None) -> fl.Tensor:
    if rounding_mode is None:
        return fl.true_divide(self, other)
    if rounding_mode == "floor":
        return fl.floor_divide(self, other)
    if rounding_mode == "trunc":
        if fl.result_type(self, other) in (fl.float16, fl.bfloat16):
            # The quotient is rounded to the dtype first; its derivative is that of a step function, zero.
            plain: Any = [x.detach() if isinstance(x, fl.Tensor) else x for x in (self, other)]
            quotient = fl.true_divide(*plain)
            whole = fl._ops._div_trunc(quotient, 1)
            if not any(isinstance(x, fl.Tensor) and x.requires_grad for x in (self, other)):
                return whole
            return fl.where(fl.ones_like(whole, dtype=fl.bool), whole, fl._ops._div_trunc(self, other))
        return fl._ops._div_trunc(self, other)
    raise RuntimeError(f"[div] expected rounding_mode to be one of None, 'trunc' or 'floor', got {rounding_mode!r}")


# The first operand may be a number, too; it has as little say in the dtype of the result as the second.
def lifted(number: Scalar, other: fl.Tensor | Scalar) -> fl.Tensor:
    device = other.device if isinstance(other, fl.Tensor) else None
    return fl.scalar_tensor(number, dtype=fl.result_type(number, other), device=device)


@composite("add.Number", method=False, out=True)
def add_to_number(self: Scalar, other: fl.Tensor | Scalar, *, alpha: Scalar = 1) -> fl.Tensor:
    return fl.add(lifted(self, other), other, alpha=alpha)


@composite("sub.Number", method=False, out=True)
@composite("subtract.Number", method=False, out=True)
def sub_from_number(self: Scalar, other: fl.Tensor | Scalar, *, alpha: Scalar = 1) -> fl.Tensor:
    return fl.sub(lifted(self, other), other, alpha=alpha)


@composite("mul.Number", method=False, out=True)
@composite("multiply.Number", method=False, out=True)
def mul_number(self: Scalar, other: fl.Tensor | Scalar) -> fl.Tensor:
    return fl.mul(lifted(self, other), other)


@composite("div.Number", method=False, out=True)
@composite("divide.Number", method=False, out=True)
@composite("true_divide.Number", method=False, out=True)
def div_number(self: Scalar, other: fl.Tensor | Scalar) -> fl.Tensor:
    return fl.div(lifted(self, other), other)


@composite("div.Number_mode", method=False, out=True)
@composite("divide.Number_mode", method=False, out=True)
def div_number_mode(self: Scalar, other: fl.Tensor | Scalar, *, rounding_mode: str | None) -> fl.Tensor:
    return fl.div(lifted(self, other), other, rounding_mode=rounding_mode)


@composite("floor_divide.Number", method=False, out=True)
def floor_divide_number(self: Scalar, other: fl.Tensor | Scalar) -> fl.Tensor:
    return fl.floor_divide(lifted(self, other), other)


remainder = pointwise(
    "remainder.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: e.remainder(x, y),
    dtypes="if",
    vjp=lambda g, x, y, out: (g, -g * e.floor_divide(x, y)),
)
scalar_first(remainder, "Scalar_Tensor")

pointwise(
    "fmod.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: e.fmod(x, y),
    dtypes="if",
    vjp=lambda g, x, y, out: (g, -g * e.trunc(x / y)),
)

reciprocal = pointwise(
    "reciprocal(Tensor self) -> Tensor", lambda x: 1 / x, promote="float", vjp=lambda g, x, out: (-g * (out * out),)
)

gcd = pointwise("gcd(Tensor self, Tensor other) -> Tensor", lambda x, y: e.gcd(x, y), dtypes="i")
lcm = pointwise("lcm(Tensor self, Tensor other) -> Tensor", lambda x, y: e.lcm(x, y), dtypes="i")


# ---------------------------------------------------------------- powers


def pow_vjp(g: e.Expr, x: e.Expr, y: e.Expr, out: e.Expr) -> tuple[e.Expr, e.Expr]:
    """Both are 0 where the power is constant: x ** 0, and 0 ** y for y of non-negative real part."""
    constant = e.land(x == 0, e.real(y) >= e.real(0))
    return (e.where(y == 0, 0, g * (y * e.pow(x, y - 1))), g * e.where(constant, 0, out * e.log(x)))


power = pointwise(
    "pow.Tensor_Tensor(Tensor self, Tensor|Scalar exponent) -> Tensor",
    {
        "b": lambda x, y: e.lor(x, e.lnot(y)),
        "i": lambda x, y: e.ipow(x, y),
        "": lambda x, y: e.pow(x, y),
    },
    dtypes="bifc",
    check="integer_power",
    cases={2: square, 3: cube, -1: reciprocal, 0.5: sqrt, 0: one},
    vjp=pow_vjp,
)
scalar_first(power, "Scalar", check="", cases={})


@composite("float_power.Scalar(Scalar self, Tensor exponent) -> Tensor", method=False, out=True)
@composite("float_power.Tensor_Tensor", inplace=True, out=True)
def float_power(self: fl.Tensor, exponent: fl.Tensor | Scalar) -> fl.Tensor:
    def is_complex(value: fl.Tensor | complex) -> bool:
        return value.is_complex() if isinstance(value, fl.Tensor) else isinstance(value, complex)

    dtype = fl.complex128 if is_complex(self) or is_complex(exponent) else fl.float64
    base: Any
    power: Any
    base, power = (v.to(dtype) if isinstance(v, fl.Tensor) else v for v in (self, exponent))
    return fl.pow(base, power)


@composite("ldexp.Tensor", inplace=True, out=True)
def ldexp(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    dtype = fl.result_type(self, other)
    return fl.mul(self, fl.pow(2.0, other.to(dtype) if dtype.is_floating_point else other))


# ---------------------------------------------------------------- clamping

clamp_min = pointwise(
    "clamp_min(Tensor self, Tensor|Scalar min) -> Tensor",
    lambda x, lo: e.maximum(x, lo),
    dtypes="bif",
    check="fitting_numbers",
    vjp=lambda g, x, lo, out: (e.where(x >= lo, g, 0), e.where(x < lo, g, 0)),
)

clamp_max = pointwise(
    "clamp_max(Tensor self, Tensor|Scalar max) -> Tensor",
    lambda x, hi: e.minimum(x, hi),
    dtypes="bif",
    check="fitting_numbers",
    vjp=lambda g, x, hi, out: (e.where(x <= hi, g, 0), e.where(x > hi, g, 0)),
)

pointwise(
    "_clamp(Tensor self, Tensor|Scalar min, Tensor|Scalar max) -> Tensor",
    lambda x, lo, hi: e.minimum(e.maximum(x, lo), hi),
    dtypes="bif",
    check="fitting_numbers",
    vjp=lambda g, x, lo, hi, out: (
        e.where(e.land(x >= lo, x <= hi), g, 0),
        e.where(e.land(lo < hi, x < lo), g, 0),
        e.where(e.lor(x > hi, hi < lo), g, 0),
    ),
)


@composite("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", inplace=True, out=True)
@composite("clamp.Tensor", inplace=True, out=True)
@composite("clip(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", inplace=True, out=True)
@composite("clip.Tensor", inplace=True, out=True)
def clamp(self: fl.Tensor, min: fl.Tensor | None = None, max: fl.Tensor | None = None) -> fl.Tensor:
    if min is not None and max is not None:
        return fl._ops._clamp(self, min, max)
    if min is not None:
        return fl.clamp_min(self, min)
    if max is not None:
        return fl.clamp_max(self, max)
    raise RuntimeError(
        "[clamp] expected at least one of min and max, got None for both: At least one of 'min' or 'max' must not be None"
    )


# ---------------------------------------------------------------- interpolation


def interpolate(a: e.Expr, b: e.Expr, weight: e.Expr, half: e.Operand) -> e.Expr:
    """From the nearer end, so that weights 0 and 1 give the ends exactly."""
    return e.where(e.abs(weight) < half, a + weight * (b - a), b - (b - a) * (1 - weight))


LERP = {
    "c": lambda a, b, weight: interpolate(a, b, weight, e.real(0.5)),
    "": lambda a, b, weight: interpolate(a, b, weight, 0.5),
}

pointwise(
    "lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> Tensor",
    LERP,
    check="same_dtype",
    vjp=lambda g, a, b, weight, out: (g * (1 - weight), g * weight, g * (b - a)),
)

pointwise(
    "lerp.Scalar(Tensor self, Tensor end, Scalar weight) -> Tensor",
    LERP,
    check="same_dtype",
    vjp=lambda g, a, b, weight, out: (g * (1 - weight), g * weight),
)


@composite("addcmul.value_first")
def addcmul_value_first(self: fl.Tensor, value: Scalar, tensor1: fl.Tensor, tensor2: fl.Tensor) -> fl.Tensor:
    _warn_value_first("addcmul")
    return fl.addcmul(self, tensor1, tensor2, value=value)


@composite("addcdiv.value_first")
def addcdiv_value_first(self: fl.Tensor, value: Scalar, tensor1: fl.Tensor, tensor2: fl.Tensor) -> fl.Tensor:
    _warn_value_first("addcdiv")
    return fl.addcdiv(self, tensor1, tensor2, value=value)


def _warn_value_first(name: str) -> None:
    import warnings

    warnings.warn(
        f"This overload of {name} is deprecated: {name}(Tensor input, Number value, Tensor tensor1, Tensor tensor2). Consider using "
        f"{name}(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value = 1) instead.",
        stacklevel=3,
    )


# ---------------------------------------------------------------- what passes know of these operators

tag("scales", "add.Tensor addcdiv addcmul div.Tensor mul.Tensor rsub.Tensor sub.Tensor")
tag("core", "add clamp div fmod mul neg pow reciprocal remainder sub")
tag(
    "elementwise",
    "add.Number clamp clip div.Number div.Number_mode div.Tensor_mode divide.Number divide.Number_mode "
    "divide.Tensor_mode float_power floor_divide.Number mul.Number multiply.Number positive sub.Number "
    "subtract.Number true_divide.Number",
)
tag(
    "takes_numbers",
    "add.Number div.Number div.Number_mode divide.Number divide.Number_mode floor_divide.Number mul.Number multiply.Number "
    "sub.Number subtract.Number true_divide.Number",
)
tag("converts_out keeps_zero", "square")
tag("piecewise_linear", "clamp clip")
autocast("float32", "pow reciprocal", on="accelerator")
autocast("widest", "addcdiv addcmul", on="accelerator")
node("LerpBackward1", "lerp.Tensor")
node("PowBackward0", "square")
