"""Samples of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, domain, samples


@samples("gcd", "lcm", "bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor", "bitwise_left_shift.Tensor",
         "bitwise_right_shift.Tensor")  # fmt: skip
def integers(make: Make) -> Iterator[Call]:
    yield call(make.index([4, 6, 9]), make.index([[2], [3]]))


@samples("bitwise_and.Scalar_Tensor", "bitwise_or.Scalar_Tensor", "bitwise_xor.Scalar_Tensor",
         "bitwise_left_shift.Scalar_Tensor", "bitwise_right_shift.Scalar_Tensor")  # fmt: skip
def integer_first(make: Make) -> Iterator[Call]:
    yield call(5, make.index([1, 2, 3]))


@samples("bitwise_not")
def bitwise_not(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 2, 3]))


@samples("pow.Scalar", "xlogy.Scalar_Self", "special_xlogy.self_scalar", "special_xlog1py.self_scalar")
def number_first(make: Make) -> Iterator[Call]:
    yield call(1.7, make.positive(2, 3))
    yield call(0.4, make.positive())


@samples("special_zeta.self_scalar")
def zeta_of_number(make: Make) -> Iterator[Call]:
    yield call(2.5, make.positive(2, 3))


@samples("remainder.Scalar_Tensor")
def remainder_of_number(make: Make) -> Iterator[Call]:
    yield call(1.7, make.positive(2, 3))


_DIFFERENTIABLE_POLYNOMIALS = [
    f"special_{kind}"
    for kind in (
        "chebyshev_polynomial_t chebyshev_polynomial_u shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
        "hermite_polynomial_h hermite_polynomial_he"
    ).split()
]
_OTHER_POLYNOMIALS = [
    f"special_{kind}"
    for kind in (
        "chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w "
        "laguerre_polynomial_l legendre_polynomial_p"
    ).split()
]


@samples(*_DIFFERENTIABLE_POLYNOMIALS)
def differentiable_polynomials(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([0, 1, 4]))
    yield call(make(3), 3)


@samples(*_OTHER_POLYNOMIALS)
def other_polynomials(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3), make.index([0, 1, 4]))
    yield call(make.constant(3), 3)


@samples(*(f"{name}.x_scalar" for name in _DIFFERENTIABLE_POLYNOMIALS + _OTHER_POLYNOMIALS))
def polynomials_at_a_number(make: Make) -> Iterator[Call]:
    yield call(0.4, make.index([0, 1, 4]))


@samples("polygamma", "special_polygamma")
def polygamma(make: Make) -> Iterator[Call]:
    for n in (0, 1, 3):
        yield call(n, make.positive(2, 3))


@samples("polygamma.method")
def polygamma_method(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3), 1)


@samples("igamma", "igammac", "special_gammainc", "special_gammaincc")
def gamma_of_a_constant(make: Make) -> Iterator[Call]:
    """Differentiable in the second argument alone."""
    yield call(make.constant(2, 3), make.positive(3))


@samples("where.self")
def where(make: Make) -> Iterator[Call]:
    mask = make.mask([[True, False, True], [False, False, True]])
    yield call(mask, make(2, 3), make(3))
    yield call(mask[0], make(2, 3), 0.5)
    yield call(mask, 0.5, make.strided(2, 3))
    yield call(make.mask(True), make(), make(0, 2))


@samples("where.method")
def where_method(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.mask([True, False, True]), make(3))


@samples("where")
def where_places(make: Make) -> Iterator[Call]:
    yield call(make.mask([[True, False], [True, True]]))


@samples("masked_fill")
def masked_fill(make: Make) -> Iterator[Call]:
    mask = make.mask([[True, False, True], [False, False, True]])
    yield call(make(2, 3), mask, 0.5)
    yield call(make(3), mask, make())
    yield call(make.strided(2, 3), mask[0], make())


@samples("_clamp")
def clamp_both(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), -0.4, 0.5)
    yield call(make(2, 3), make.positive(3, low=-0.5, high=-0.3), make.positive(2, 1, low=0.4, high=0.6))


@samples("clamp", "clip")
def clamp(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), -0.4, 0.5)
    yield call(make(2, 3), max=0.5)
    yield call(make.strided(2, 3), -0.4)


@samples("clamp.Tensor", "clip.Tensor")
def clamp_tensors(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.positive(3, low=-0.5, high=-0.3), make.positive(2, 1, low=0.4, high=0.6))
    yield call(make(2, 3), max=make.positive(low=0.4, high=0.6))


@samples("lerp.Scalar")
def lerp(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3), 0.3)
    yield call(make(), make(2), 0.8)


@samples("div.Tensor_mode", "divide.Tensor_mode")
def division_modes(make: Make) -> Iterator[Call]:
    for mode in (None,) if make.dtype.is_complex else (None, "trunc", "floor"):
        yield call(make.positive(2, 3), make.positive(3, low=0.25, high=0.45), rounding_mode=mode)


@samples("round.decimals")
def round_decimals(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), decimals=1)


@samples("special_round")
def special_round(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))


@samples("ldexp.Tensor")
def ldexp(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([1, 2, -1]))
    yield call(make(2, 3), make(3))


@samples(
    "add.Number", "sub.Number", "subtract.Number", "mul.Number", "multiply.Number", "div.Number", "divide.Number",
    "true_divide.Number", "floor_divide.Number",
)  # fmt: skip
def of_number(make: Make) -> Iterator[Call]:
    yield call(1.7, make.positive(2, 3))


@samples("div.Number_mode", "divide.Number_mode")
def of_number_rounded(make: Make) -> Iterator[Call]:
    yield call(1.7, make.positive(2, 3), rounding_mode="trunc")


@samples("float_power.Scalar")
def float_power_of_number(make: Make) -> Iterator[Call]:
    yield call(1.7, make.positive(2, 3))


@samples("frexp")
def frexp(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))


@samples("nan_to_num", "_nan_to_num")
def nan_to_num(make: Make) -> Iterator[Call]:
    x = make(2, 3)
    x[0, 1] = complex(math.nan, math.nan) if x.is_complex() else math.nan
    x[1, 0] = complex(math.inf, math.inf) if x.is_complex() else math.inf
    yield call(x, 0.1, 2.0, -2.0)


@samples("prelu", "nn_prelu")
def prelu(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3))
    yield call(make(2, 3, 2), make(1))
    yield call(make(4), make(1))


@samples("nn_glu")
def glu(make: Make) -> Iterator[Call]:
    yield call(make(2, 4))
    yield call(make.strided(4, 3), 0)


@samples("rrelu", "nn_rrelu", "nn_rrelu_")
def rrelu(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make(2, 3), 0.1, 0.3, True)


@samples("nn_threshold", "nn_threshold_", "threshold")
def threshold(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 0.3, 0.1)


@samples("isclose")
def comparisons(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2, 3))


@samples("special_multigammaln", "mvlgamma")
def multigammaln(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3, low=1.2, high=2.5), 2)


@samples("gelu")
def gelu(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
    yield call(make.strided(3, 2), approximate="tanh")


@samples("_prelu_kernel")
def prelu_kernel(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(1, 3))


@samples("heaviside")
def heaviside(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3))


@samples("logit", "special_logit")
def logit(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3))
    yield call(make.positive(2, 3), 0.3)


@samples("_logit.eps")
def logit_eps(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3), 0.3)


@samples("special_zeta")
def zeta(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3, low=1.2, high=2.7), make.positive(3))


@samples("special_airy_ai")
def airy(make: Make) -> Iterator[Call]:
    """The derivative is not known."""
    yield call(make.constant(2, 3))


domain(
    (0.2, 0.9),
    *(
        "log log2 log10 sqrt rsqrt special_entr lgamma special_gammaln digamma special_digamma special_psi pow float_power "
        "_logit special_ndtri xlogy special_xlogy special_xlog1py igamma igammac special_gammainc special_gammaincc "
        "polygamma special_polygamma special_bessel_y0 special_bessel_y1 special_modified_bessel_k0 "
        "special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 remainder fmod "
        "floor_divide _div_trunc"
    ).split(),
)
domain((1.2, 2.7), "acosh", "arccosh", "special_zeta")
domain((-0.5, 0.9), "log1p", "special_log1p")
