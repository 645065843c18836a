"""Special functions: error functions, the gamma family, Bessel and Airy functions, orthogonal polynomials.

All promote integers to the default floating dtype and none takes complex numbers.
"""

from __future__ import annotations

import math

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.elementwise.aliases import alias, scalar_first
from flambeau.ops.elementwise.math_functions import xlogy
from flambeau.ops.record import Expression, Record, autocast, composite, pointwise, tag

SQRT_PI = math.sqrt(math.pi)
SQRT_2PI = math.sqrt(2 * math.pi)
SQRT_HALF = math.sqrt(0.5)


def unary(name: str, vjp: Expression, variable: str = "self") -> Record:
    """A function of one operand, `fl::math::<name>`; a name in `special_` is found in the module `special` only."""
    special = name.startswith("special_")
    return pointwise(
        f"{name}(Tensor {variable}) -> Tensor",
        e.function(name.removeprefix("special_")),
        dtypes="f",
        promote="float",
        inplace=not special,
        vjp=vjp,
    )


def sign(x: e.Expr) -> e.Expr:
    return e.where(x > 0, 1, e.where(x < 0, -1, 0))


def near_zero(x: e.Expr, value: float, otherwise: Expression) -> e.Expr:
    """A derivative with a removable singularity at 0, where it has the given value."""
    close = e.abs(x) < 1e-12
    return e.where(close, value, otherwise(e.where(close, 1, x)))


# ---------------------------------------------------------------- the error function and the normal distribution

erf = unary("erf", lambda g, x, out: (g * (2 / SQRT_PI) * e.exp(-(x * x)),))
erfc = unary("erfc", lambda g, x, out: (g * (-2 / SQRT_PI) * e.exp(-(x * x)),))
erfinv = unary("erfinv", lambda g, x, out: (g * (SQRT_PI / 2) * e.exp(e.erfinv(x) * e.erfinv(x)),))
for record in (erf, erfc, erfinv):
    alias(f"special_{record.schema.name}", record)

unary("special_erfcx", lambda g, x, out: (g * (2 * x * out - 2 / SQRT_PI),))
unary("special_ndtr", lambda g, x, out: (g * e.exp(-0.5 * (x * x)) / SQRT_2PI,))
unary("special_ndtri", lambda g, x, out: (g * SQRT_2PI * e.exp(0.5 * (out * out)),))
unary("special_log_ndtr", lambda g, x, out: (g * math.sqrt(2 / math.pi) / e.erfcx(-x * SQRT_HALF),))
unary("special_entr", lambda g, x, out: (g * (-1 - e.log(x)),))


# ---------------------------------------------------------------- gamma and its relatives

lgamma = unary("lgamma", lambda g, x, out: (g * e.digamma(x),))
digamma = unary("digamma", lambda g, x, out: (g * e.trigamma(x),))
alias("special_gammaln", lgamma)
alias("special_digamma special_psi", digamma)

polygamma = pointwise(
    "polygamma(int n, Tensor self) -> Tensor",
    lambda n, x: e.where(n == 0, e.digamma(x), e.polygamma(n, x)),
    dtypes="f",
    promote="float",
    check="not_negative",
    method=False,
    inplace=False,
    vjp=lambda g, n, x, out: (g * e.polygamma(n + 1, x),),
)
alias("special_polygamma", polygamma)


@composite("polygamma.method", function=False, inplace=True)
def polygamma_method(self: fl.Tensor, n: int) -> fl.Tensor:
    return fl.polygamma(n, self)


@composite(inplace=True, out=True)
@composite("special_multigammaln", out=True)
def mvlgamma(self: fl.Tensor, p: int) -> fl.Tensor:
    if p < 1:
        raise RuntimeError(f"[mvlgamma] expected p of at least 1, got {p}")
    if self.dtype == fl.bool or self.is_complex():
        raise NotImplementedError(f"[mvlgamma] expected a real tensor, got {self.dtype}")
    x = self if self.is_floating_point() else self.to(fl.get_default_dtype())
    steps = fl.arange(p, dtype=x.dtype, device=x.device) * -0.5
    return fl.lgamma(x.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


def gamma_density(a: e.Expr, x: e.Expr) -> e.Expr:
    return e.exp((a - 1) * e.log(x) - x - e.lgamma(a))


for name, special, sense in (("igamma", "gammainc", 1), ("igammac", "gammaincc", -1)):
    record = pointwise(
        f"{name}(Tensor self, Tensor other) -> Tensor",
        e.function(name),
        dtypes="f",
        vjp=lambda g, a, x, out, sense=sense: (None, g * sense * gamma_density(a, x)),
    )
    alias(f"special_{special}", record)


# ---------------------------------------------------------------- functions of two numbers

special_xlogy = pointwise(
    "special_xlogy(Tensor self, Tensor|Scalar other) -> Tensor",
    xlogy.details["table"],
    dtypes="f",
    promote="float",
    inplace=False,
    vjp=xlogy.vjp,
    alias_of=xlogy.name,
)

xlog1py = pointwise(
    "special_xlog1py(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda x, y: e.xlog1py(x, y),
    dtypes="f",
    promote="float",
    inplace=False,
    vjp=lambda g, x, y, out: (e.where(e.land(x == 0, y <= -1), 0, e.xlog1py(g, y)), g * x / (y + 1)),
)

zeta = pointwise(
    "special_zeta(Tensor self, Tensor|Scalar other) -> Tensor",
    lambda s, q: e.zeta(s, q),
    dtypes="f",
    promote="float",
    inplace=False,
    vjp=lambda g, s, q, out: (None, -g * s * e.zeta(s + 1, q)),
)

for record in (special_xlogy, xlog1py, zeta):
    scalar_first(record, "self_scalar")


# ---------------------------------------------------------------- Bessel and Airy functions

i0 = unary("i0", lambda g, x, out: (g * e.i1(x),))
alias("special_i0", i0)
unary("special_i0e", lambda g, x, out: (g * (e.i1e(x) - sign(x) * out),))
unary("special_i1", lambda g, x, out: (g * near_zero(x, 0.5, lambda t: e.i0(t) - out / t),))
unary("special_i1e", lambda g, x, out: (g * near_zero(x, 0.5, lambda t: e.i0e(t) - out * (sign(t) + 1 / t)),))

unary("special_bessel_j0", lambda g, x, out: (-g * e.bessel_j1(x),))
unary("special_bessel_j1", lambda g, x, out: (g * near_zero(x, 0.5, lambda t: e.bessel_j0(t) - out / t),))
unary("special_bessel_y0", lambda g, x, out: (-g * e.bessel_y1(x),))
unary("special_bessel_y1", lambda g, x, out: (g * (e.bessel_y0(x) - out / x),))
unary("special_modified_bessel_i0", lambda g, x, out: (g * e.modified_bessel_i1(x),))
unary(
    "special_modified_bessel_i1",
    lambda g, x, out: (g * near_zero(x, 0.5, lambda t: e.modified_bessel_i0(t) - out / t),),
)
unary("special_modified_bessel_k0", lambda g, x, out: (-g * e.modified_bessel_k1(x),))
unary("special_modified_bessel_k1", lambda g, x, out: (-g * (e.modified_bessel_k0(x) + out / x),))
unary("special_scaled_modified_bessel_k0", lambda g, x, out: (g * (out - e.scaled_modified_bessel_k1(x)),), "x")
unary(
    "special_scaled_modified_bessel_k1",
    lambda g, x, out: (g * (out - out / x - e.scaled_modified_bessel_k0(x)),),
    "x",
)
unary("special_spherical_bessel_j0", lambda g, x, out: (g * near_zero(x, 0, lambda t: (e.cos(t) - out) / t),), "x")
unary("special_airy_ai", lambda g, x, out: (None,), "x")


# ---------------------------------------------------------------- orthogonal polynomials


def polynomial(name: str, derivative: Expression = lambda x, n: None) -> None:
    """The polynomial of degree n at x; PyTorch's have no derivative, ours where it is a polynomial of the list."""

    def vjp(g: e.Expr, x: e.Expr, n: e.Expr, out: e.Expr) -> tuple[e.Expr | None, None]:
        by_x = derivative(x, n)
        return (None if by_x is None else g * by_x, None)

    record = pointwise(
        f"special_{name}(Tensor x, Tensor|Scalar n) -> Tensor",
        e.function(name),
        dtypes="f",
        promote="float",
        inplace=False,
        vjp=vjp,
    )
    scalar_first(record, "x_scalar")


def chebyshev_derivative(x: e.Expr, n: e.Expr) -> e.Expr:
    """The derivative of the polynomials of the second kind; at the ends of the interval it is a limit."""
    end = 1 - x * x
    limit = n * (n + 1) * (n + 2) / 3 * e.where(x > 0, 1, 1 - 2 * e.fmod(n + 1, 2))
    inner = (x * e.chebyshev_polynomial_u(x, n) - (n + 1) * e.chebyshev_polynomial_t(x, n + 1)) / e.where(
        end == 0, 1, end
    )
    return e.where(n < 1, 0, e.where(end == 0, limit, inner))


polynomial("chebyshev_polynomial_t", lambda x, n: n * e.chebyshev_polynomial_u(x, n - 1))
polynomial("chebyshev_polynomial_u", chebyshev_derivative)
polynomial("chebyshev_polynomial_v")
polynomial("chebyshev_polynomial_w")
polynomial("shifted_chebyshev_polynomial_t", lambda x, n: 2 * n * e.shifted_chebyshev_polynomial_u(x, n - 1))
polynomial("shifted_chebyshev_polynomial_u", lambda x, n: 2 * chebyshev_derivative(2 * x - 1, n))
polynomial("shifted_chebyshev_polynomial_v")
polynomial("shifted_chebyshev_polynomial_w")
polynomial("hermite_polynomial_h", lambda x, n: 2 * n * e.hermite_polynomial_h(x, n - 1))
polynomial("hermite_polynomial_he", lambda x, n: n * e.hermite_polynomial_he(x, n - 1))
polynomial("laguerre_polynomial_l")
polynomial("legendre_polynomial_p")


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "erf")
tag("elementwise", "polygamma.method")
tag("keeps_zero", "erf erfinv")
autocast("float32", "erfinv", on="accelerator")
