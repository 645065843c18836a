"""Elementary functions: exponentials, logarithms, trigonometry, rounding, signs, and functions of two numbers.

Integers are promoted to the default floating dtype, except where the result of an integer is an integer.
"""

from __future__ import annotations

import math

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.elementwise.aliases import alias, scalar_first
from flambeau.ops.record import Expression, Record, autocast, composite, pointwise, tag

LN2 = math.log(2)
LN10 = math.log(10)
PI = math.pi


def zero(*args: e.Expr) -> tuple[e.Expr]:
    """The derivative of a piecewise constant function of one operand."""
    return (e.lift(0),)


def unary(name: str, vjp: Expression | dict[str, Expression], dtypes: str = "fc") -> Record:
    """A function of one operand that is `fl::math::<name>` for floating (and complex) numbers."""
    return pointwise(f"{name}(Tensor self) -> Tensor", e.function(name), dtypes=dtypes, promote="float", vjp=vjp)


# ---------------------------------------------------------------- exponentials, logarithms and roots

exp = unary("exp", lambda g, x, out: (g * out,))
exp2 = unary("exp2", lambda g, x, out: (g * out * LN2,))
expm1 = unary("expm1", lambda g, x, out: (g * (out + 1),))
log = unary("log", lambda g, x, out: (g / x,))
log2 = unary("log2", lambda g, x, out: (g / (x * LN2),))
log10 = unary("log10", lambda g, x, out: (g / (x * LN10),))
log1p = unary("log1p", lambda g, x, out: (g / (x + 1),))
sqrt = unary("sqrt", lambda g, x, out: (g / (2 * out),))
rsqrt = unary("rsqrt", lambda g, x, out: (-0.5 * g * (out * out * out),))
alias("special_exp2", exp2)
alias("special_expm1", expm1)
alias("special_log1p", log1p)


# ---------------------------------------------------------------- trigonometric and hyperbolic functions

unary("sin", lambda g, x, out: (g * e.cos(x),))
unary("cos", lambda g, x, out: (-g * e.sin(x),))
unary("tan", lambda g, x, out: (g * (1 + out * out),))
asin = unary("asin", lambda g, x, out: (g * e.rsqrt(1 - x * x),))
acos = unary("acos", lambda g, x, out: (-g * e.rsqrt(1 - x * x),))
atan = unary("atan", lambda g, x, out: (g / (x * x + 1),))
unary("sinh", lambda g, x, out: (g * e.cosh(x),))
unary("cosh", lambda g, x, out: (g * e.sinh(x),))
unary("tanh", lambda g, x, out: (g * (1 - out * out),))
asinh = unary("asinh", lambda g, x, out: (g * e.rsqrt(x * x + 1),))
acosh = unary("acosh", lambda g, x, out: (g * e.rsqrt(x - 1) * e.rsqrt(x + 1),))
atanh = unary("atanh", lambda g, x, out: (g / ((1 - x) * (1 + x)),))
for record in (asin, acos, atan, asinh, acosh, atanh):
    alias("arc" + record.schema.name[1:], record)

sigmoid = unary("sigmoid", lambda g, x, out: (g * (1 - out) * out,))
alias("special_expit", sigmoid)


def sinc_derivative(x: e.Expr, sinc: e.Expr) -> e.Expr:
    """(cos(pi x) - sinc(x)) / x, near 0 by its Taylor series, where the difference cancels."""
    angle = PI * x
    square = angle * angle
    series: e.Expr = e.lift(0)
    for k in range(9, 0, -1):
        series = (-1) ** k * 2 * k / math.factorial(2 * k + 1) + square * series
    half_turns = x - 2 * e.round(x * 0.5)
    return e.where(square < 1, PI * (angle * series), (e.cos(PI * half_turns) - sinc) / x)


sinc = unary(
    "sinc",
    {
        "c": lambda g, x, out: (e.where(x == 0, 0, g * e.conj((e.cos(PI * x) - out) / x)),),
        "": lambda g, x, out: (g * sinc_derivative(x, out),),
    },
)
alias("special_sinc", sinc)

for name, factor in (("deg2rad", PI / 180), ("rad2deg", 180 / PI)):
    pointwise(
        f"{name}(Tensor self) -> Tensor",
        lambda x, factor=factor: x * factor,
        dtypes="f",
        promote="float",
        vjp=lambda g, x, out, factor=factor: (g * factor,),
    )

atan2 = pointwise(
    "atan2(Tensor self, Tensor other) -> Tensor",
    lambda y, x: e.atan2(y, x),
    dtypes="f",
    promote="float",
    vjp=lambda g, y, x, out: (
        e.where(y * y + x * x == 0, 0, g * (x / (y * y + x * x))),
        e.where(y * y + x * x == 0, 0, -g * (y / (y * y + x * x))),
    ),
)
alias("arctan2", atan2)


# ---------------------------------------------------------------- rounding

for name in ("ceil", "floor", "round", "trunc"):
    record = pointwise(
        f"{name}(Tensor self) -> Tensor", {"i": lambda x: x, "f": e.function(name)}, dtypes="if", vjp=zero
    )
    alias({"trunc": "fix"}.get(name, ""), record)


def round_decimals(x: e.Expr, decimals: e.Expr) -> e.Expr:
    power = e.pow(10, e.abs(decimals))
    return e.where(decimals < 0, e.round(x / power) * power, e.round(x * power) / power)


pointwise(
    "round.decimals(Tensor self, *, int decimals) -> Tensor", round_decimals, dtypes="f", vjp=lambda g, *args: zero()
)


@composite(out=True)
def special_round(self: fl.Tensor, *, decimals: int = 0) -> fl.Tensor:
    return fl.round(self, decimals=decimals) if decimals else fl.round(self)


pointwise("frac(Tensor self) -> Tensor", lambda x: x - e.trunc(x), dtypes="f", vjp=lambda g, x, out: (g,))


# ---------------------------------------------------------------- signs and neighbours

pointwise(
    "sign(Tensor self) -> Tensor",
    {"b": lambda x: x, "": lambda x: e.where(x > 0, 1, e.where(x < 0, -1, 0))},
    dtypes="bif",
    vjp=zero,
)

pointwise(
    "signbit(Tensor self) -> Tensor",
    {"f": lambda x: e.copysign(1, x) < 0, "": lambda x: x < 0},
    dtypes="bif",
    result="bool",
    inplace=False,
)

pointwise(
    "copysign.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: e.copysign(x, y),
    dtypes="f",
    promote="float",
    vjp=lambda g, x, y, out: (e.where(x == 0, 0, g * (out / x)), e.lift(0)),
)

pointwise(
    "heaviside(Tensor self, Tensor values) -> Tensor",
    lambda x, values: e.where(x == 0, values, e.where(x > 0, 1, 0)),
    dtypes="bif",
    check="same_dtype",
    vjp=lambda g, x, values, out: (e.lift(0), e.where(x == 0, g, 0)),
)

pointwise(
    "_nextafter(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.nextafter(x, y),
    dtypes="f",
    vjp=lambda g, x, y, out: (e.where(x == y, 0, g), e.lift(0)),
    inplace=False,
    out=False,
    module="_ops",
    method=False,
)


@composite("nextafter", inplace=True, out=True)
def nextafter(self: fl.Tensor, other: fl.Tensor) -> fl.Tensor:
    dtype = fl.result_type(self, other)
    return _next_reduced(self, other, dtype) if dtype in (fl.float16, fl.bfloat16) else fl._ops._nextafter(self, other)


def _next_reduced(self: fl.Tensor, other: fl.Tensor, dtype: fl.dtype) -> fl.Tensor:
    """The next half or bfloat16 number, computed in float32: 5/8 to 5/4 of a step is added, and rounded to one step.

    The distance of neighbours doubles at powers of two, so the part of a step that is added there fits both sides.
    """
    limits = fl.finfo(dtype)
    wide, target = self.float(), other.float()
    step = (wide.abs() * (limits.eps * 0.625)).clamp_min(limits.smallest_normal * limits.eps * 0.75)
    stepped = fl.where(target > wide, wide + step, wide - step).to(dtype).float()
    largest = fl.copysign(wide.new_full((), limits.max), wide)
    stepped = fl.where(wide.isinf(), largest, stepped)
    stepped = fl.where(wide == target, target, stepped)
    return fl.where(wide.isnan() | target.isnan(), wide + target, stepped).to(dtype)


def real_or(x: e.Expr, nan: e.Expr, posinf: e.Expr, neginf: e.Expr, zero: e.Operand) -> e.Expr:
    """x, or the stand-in for the non-finite value that it is."""
    return e.where(x != x, nan, e.where(e.isinf(x), e.where(x > zero, posinf, neginf), x))


def complex_or(x: e.Expr, nan: e.Expr, posinf: e.Expr, neginf: e.Expr) -> e.Expr:
    stand_ins = (e.real(nan), e.real(posinf), e.real(neginf), e.real(0))
    return e.make_complex(real_or(e.real(x), *stand_ins), real_or(e.imag(x), *stand_ins))


pointwise(
    "_nan_to_num(Tensor self, float nan, float posinf, float neginf) -> Tensor",
    {"f": lambda x, *stand_ins: real_or(x, *stand_ins, 0), "c": complex_or},  # type: ignore[call-arg]
    vjp={
        "f": lambda g, x, *rest: (e.where(e.isfinite(x), g, 0),),
        "c": lambda g, x, *rest: (e.where(e.land(e.isfinite(e.real(x)), e.isfinite(e.imag(x))), g, 0),),
    },
)


@composite(inplace=True, out=True)
def nan_to_num(
    self: fl.Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> fl.Tensor:
    if not (self.is_floating_point() or self.is_complex()):
        return self.clone()
    limits = fl.finfo(self.dtype)
    return fl._ops._nan_to_num(
        self,
        0.0 if nan is None else nan,
        limits.max if posinf is None else posinf,
        limits.min if neginf is None else neginf,
    )


# ---------------------------------------------------------------- functions of two numbers

pointwise(
    "hypot(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.hypot(x, y),
    dtypes="f",
    vjp=lambda g, x, y, out: (g * (x / out), g * (y / out)),
)

pointwise(
    "logaddexp(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.logaddexp(x, y),
    inplace=False,
    vjp=lambda g, x, y, out: (g / (1 + e.exp(y - x)), g / (1 + e.exp(x - y))),
)

pointwise(
    "logaddexp2(Tensor self, Tensor other) -> Tensor",
    lambda x, y: e.logaddexp2(x, y),
    dtypes="f",
    inplace=False,
    vjp=lambda g, x, y, out: (g / (1 + e.exp2(y - x)), g / (1 + e.exp2(x - y))),
)

xlogy = pointwise(
    "xlogy.Tensor(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: e.xlogy(x, y),
    dtypes="f",
    promote="float",
    vjp=lambda g, x, y, out: (e.where(e.land(x == 0, y <= 0), 0, e.xlogy(g, y)), g * x / y),
)
scalar_first(xlogy, "Scalar_Self")


# ---------------------------------------------------------------- logit

pointwise(
    "_logit(Tensor self) -> Tensor",
    lambda x: e.log(x / (1 - x)),
    dtypes="f",
    promote="float",
    vjp=lambda g, x, out: (e.where(e.lor(x < 0, x > 1), float("nan"), g / (x * (1 - x))),),
)

pointwise(
    "_logit.eps(Tensor self, float eps) -> Tensor",
    lambda x, eps: (lambda z: e.log(z / (1 - z)))(e.where(x < eps, eps, e.where(x > 1 - eps, 1 - eps, x))),
    dtypes="f",
    promote="float",
    vjp=lambda g, x, eps, out: (e.where(e.lor(x < eps, x > 1 - eps), 0, g / (x * (1 - x))),),
)


@composite(inplace=True, out=True)
@composite("special_logit", out=True)
def logit(self: fl.Tensor, eps: float | None = None) -> fl.Tensor:
    return fl._ops._logit(self) if eps is None or eps < 0 else fl._ops._logit(self, eps)


# ---------------------------------------------------------------- what passes know of these operators

tag(
    "core",
    "acos acosh asin asinh atan atan2 atanh ceil cos cosh exp expm1 floor log log10 log1p log2 round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc",
)
tag("elementwise", "logit nan_to_num special_logit special_round")
tag(
    "keeps_zero",
    "arcsin arcsinh arctan arctanh asin asinh atan atanh ceil deg2rad expm1 fix floor frac log1p nan_to_num "
    "rad2deg round sign signbit sin sinh sqrt tan tanh trunc",
)
tag("signed_unit_grid", "tanh")
tag("unit_grid", "sigmoid")
autocast("float32", "acos asin cosh exp expm1 log log10 log1p log2 rsqrt sinh tan", on="accelerator")
autocast("widest", "atan2", on="accelerator")
