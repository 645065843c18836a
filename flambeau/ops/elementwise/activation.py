"""Activation functions.

The arithmetic is in records named as PyTorch's operators are; those that PyTorch offers only through `nn.functional`
live in the module `_ops`. The `nn_` composites below them give `nn.functional` its signatures with `inplace`.
"""

from __future__ import annotations

import math

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.record import Scalar, autocast, composite, node, pointwise, tag

SELU_ALPHA = 1.6732632423543772848170429916717
SELU_SCALE = 1.0507009873554804934193349852946


# ---------------------------------------------------------------- rectifiers

pointwise(
    "relu(Tensor self) -> Tensor",
    lambda x: e.where(x <= 0, 0, x),
    dtypes="if",
    out=False,
    vjp=lambda g, x, out: (e.where(out <= 0, 0, g),),
)

pointwise(
    "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
    lambda x, lo, hi: e.minimum(e.maximum(x, lo), hi),
    dtypes="if",
    module="_ops",
    method=False,
    vjp=lambda g, x, lo, hi, out: (e.where(e.lor(x <= lo, x >= hi), 0, g),),
)

pointwise(
    "relu6(Tensor self) -> Tensor",
    lambda x: e.minimum(e.maximum(x, 0), 6),
    dtypes="if",
    module="_ops",
    method=False,
    out=False,
    vjp=lambda g, x, out: (e.where(e.lor(x <= 0, x >= 6), 0, g),),
)

pointwise(
    "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
    lambda x, threshold, value: e.where(x <= threshold, value, x),
    dtypes="if",
    method=False,
    vjp=lambda g, x, threshold, value, out: (e.where(x <= threshold, 0, g),),
)

pointwise(
    "leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
    lambda x, slope: e.where(x > 0, x, x * slope),
    dtypes="f",
    module="_ops",
    method=False,
    vjp=lambda g, x, slope, out: (e.where(x > 0, g, g * slope),),
)

pointwise(
    "_prelu_kernel(Tensor self, Tensor weight) -> Tensor",
    lambda x, weight: e.where(x > 0, x, weight * x),
    dtypes="f",
    inplace=False,
    out=False,
    vjp=lambda g, x, weight, out: (e.where(x > 0, g, weight * g), e.where(x > 0, 0, x * g)),
)


@composite()
def prelu(self: fl.Tensor, weight: fl.Tensor) -> fl.Tensor:
    if self.dtype != weight.dtype:
        raise RuntimeError(f"[prelu] expected input and weight of one dtype, got {self.dtype} and {weight.dtype}")
    if weight.dim() > 1:
        raise RuntimeError(f"[prelu] expected a weight of 0 or 1 dimensions, got shape {tuple(weight.shape)}")
    if weight.numel() == 1:
        return fl._ops._prelu_kernel(self, weight.reshape([1] * self.dim()))
    if self.dim() == 0:
        raise RuntimeError(f"[prelu] expected an input with channels for {weight.numel()} weights, got a scalar tensor")
    channels = self.shape[1] if self.dim() > 1 else 1
    if channels != weight.numel():
        raise RuntimeError(f"[prelu] expected one weight for each of {channels} channels, got {weight.numel()}")
    return fl._ops._prelu_kernel(self, weight.reshape([-1 if i == 1 else 1 for i in range(self.dim())]))


@composite(method=False, inplace=True, tags=("random",))
def rrelu(
    self: fl.Tensor,
    lower: Scalar = 0.125,
    upper: Scalar = 0.3333333333333333,
    training: bool = False,
    generator: fl.Generator | None = None,
) -> fl.Tensor:
    if not lower <= upper:  # type: ignore[operator]
        raise RuntimeError(f"[rrelu] expected lower <= upper, got {lower} and {upper}")
    if not training:
        return fl._ops.leaky_relu(self, (lower + upper) / 2)
    slope = fl.empty_like(self, requires_grad=False).uniform_(lower, upper, generator=generator)  # type: ignore[arg-type]
    return fl.where(self <= 0, self * slope, self)


# ---------------------------------------------------------------- exponential units


def exponential_slope(x: e.Expr, above: e.Expr, scale: e.Expr, exponent: e.Expr) -> e.Expr:
    """`above` for positive x, else scale * exp(exponent); where the slope jumps, at 0, its own slope is 0."""
    return e.where(x > 0, above, e.where(x < 0, scale * e.exp(exponent), scale))


pointwise(
    "elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
    lambda x, alpha, scale, stretch: e.where(x <= 0, e.expm1(x * stretch) * (alpha * scale), x * scale),
    dtypes="f",
    module="_ops",
    method=False,
    vjp=lambda g, x, alpha, scale, stretch, out: (
        exponential_slope(x, g * scale, g * (stretch * (alpha * scale)), x * stretch),
    ),
)

pointwise(
    "selu(Tensor self) -> Tensor",
    lambda x: e.where(x <= 0, e.expm1(x) * (SELU_ALPHA * SELU_SCALE), x * SELU_SCALE),
    dtypes="f",
    method=False,
    out=False,
    vjp=lambda g, x, out: (exponential_slope(x, g * SELU_SCALE, g * (SELU_ALPHA * SELU_SCALE), x),),
)

pointwise(
    "celu(Tensor self, Scalar alpha=1.0) -> Tensor",
    lambda x, alpha: e.where(x <= 0, e.expm1(x / alpha) * alpha, x),
    dtypes="f",
    method=False,
    out=False,
    vjp=lambda g, x, alpha, out: (exponential_slope(x, g, g, x / alpha),),
)

pointwise(
    "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
    lambda x, beta, threshold: e.where(x * beta > threshold, x, e.log1p(e.exp(x * beta)) / beta),
    dtypes="f",
    module="nn.functional",
    inplace=False,
    vjp=lambda g, x, beta, threshold, out: (e.where(x * beta > threshold, g, g * e.sigmoid(x * beta)),),
)

pointwise(
    "log_sigmoid(Tensor self) -> Tensor",
    lambda x: e.minimum(x, 0) - e.log1p(e.exp(-e.abs(x))),
    dtypes="f",
    module="nn.functional",
    public="logsigmoid",
    contiguous=True,
    inplace=False,
    vjp=lambda g, x, out: (g * e.sigmoid(-x),),
)


# ---------------------------------------------------------------- smooth gates


def silu_vjp(g: e.Expr, x: e.Expr, out: e.Expr) -> tuple[e.Expr]:
    s = e.sigmoid(x)
    return (g * (s * (1 + x * (1 - s))),)


pointwise(
    "silu(Tensor self) -> Tensor",
    {"f": lambda x: e.silu(x), "c": lambda x: x / (1 + e.exp(-x))},
    module="_ops",
    method=False,
    vjp=silu_vjp,
)


def mish_vjp(g: e.Expr, x: e.Expr, out: e.Expr) -> tuple[e.Expr]:
    t = e.tanh(e.log1p(e.exp(x)))
    return (g * (t + x * e.sigmoid(x) * (1 - t * t)),)


pointwise("mish(Tensor self) -> Tensor", lambda x: e.mish(x), dtypes="f", module="_ops", method=False, vjp=mish_vjp)


def gelu_erf_vjp(g: e.Expr, x: e.Expr, out: e.Expr) -> tuple[e.Expr]:
    cdf = 0.5 * (1 + e.erf(x * math.sqrt(0.5)))
    return (g * (cdf + x * e.exp(-0.5 * (x * x)) * (1 / math.sqrt(2 * math.pi))),)


def gelu_tanh_vjp(g: e.Expr, x: e.Expr, out: e.Expr) -> tuple[e.Expr]:
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    s = e.sigmoid((2 * beta) * (x + kappa * (x * x * x)))  # (1 + tanh u) / 2, which takes one exponential
    derivative = (s * (1 - s)) * ((2 * beta) * (1 + 3 * kappa * (x * x)))
    return (g * (s + x * derivative),)


pointwise(
    'gelu(Tensor self, *, str approximate="none") -> Tensor',
    {"none": lambda x: e.gelu_erf(x), "tanh": lambda x: e.gelu_tanh(x)},
    dtypes="f",
    select="approximate",
    module="nn.functional",
    inplace=False,
    vjp={"none": gelu_erf_vjp, "tanh": gelu_tanh_vjp},
)

pointwise(
    "hardsigmoid(Tensor self) -> Tensor",
    lambda x: e.minimum(e.maximum(x + 3, 0), 6) / 6,
    dtypes="f",
    module="_ops",
    method=False,
    vjp=lambda g, x, out: (e.where(e.land(x > -3, x < 3), g / 6, 0),),
)

pointwise(
    "hardswish(Tensor self) -> Tensor",
    lambda x: x * e.minimum(e.maximum(x + 3, 0), 6) / 6,
    dtypes="f",
    module="_ops",
    method=False,
    vjp=lambda g, x, out: (e.where(x <= -3, 0, e.where(x >= 3, g, g * (x / 3 + 0.5))),),
)


# ---------------------------------------------------------------- shrinkage

pointwise(
    "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    lambda x, lambd: e.where(e.land(x >= -lambd, x <= lambd), 0, x),
    dtypes="f",
    inplace=False,
    vjp=lambda g, x, lambd, out: (e.where(e.land(x >= -lambd, x <= lambd), 0, g),),
)

pointwise(
    "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    lambda x, lambd: e.where(x > lambd, x - lambd, e.where(x < -lambd, x + lambd, x * 0)),
    dtypes="f",
    check="not_negative",
    module="nn.functional",
    inplace=False,
    vjp=lambda g, x, lambd, out: (e.where(e.land(x >= -lambd, x <= lambd), 0, g),),
)


# ---------------------------------------------------------------- nn.functional


@composite()
def nn_relu(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl.relu_(input) if inplace else fl.relu(input)


@composite()
def nn_relu6(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl._ops.relu6_(input) if inplace else fl._ops.relu6(input)


@composite()
def nn_hardtanh(input: fl.Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> fl.Tensor:
    if min_val > max_val:
        raise ValueError(f"[hardtanh] expected min_val <= max_val, got {min_val} and {max_val}")
    return (fl._ops.hardtanh_ if inplace else fl._ops.hardtanh)(input, min_val, max_val)


@composite()
def nn_threshold(input: fl.Tensor, threshold: float, value: float, inplace: bool = False) -> fl.Tensor:
    return (fl.threshold_ if inplace else fl.threshold)(input, threshold, value)


@composite()
def nn_leaky_relu(input: fl.Tensor, negative_slope: float = 0.01, inplace: bool = False) -> fl.Tensor:
    return (fl._ops.leaky_relu_ if inplace else fl._ops.leaky_relu)(input, negative_slope)


@composite()
def nn_prelu(input: fl.Tensor, weight: fl.Tensor) -> fl.Tensor:
    return fl.prelu(input, weight)


@composite()
def nn_rrelu(
    input: fl.Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> fl.Tensor:
    return (fl.rrelu_ if inplace else fl.rrelu)(input, lower, upper, training)


@composite()
def nn_elu(input: fl.Tensor, alpha: float = 1.0, inplace: bool = False) -> fl.Tensor:
    return (fl._ops.elu_ if inplace else fl._ops.elu)(input, alpha)


@composite()
def nn_selu(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl.selu_(input) if inplace else fl.selu(input)


@composite()
def nn_celu(input: fl.Tensor, alpha: float = 1.0, inplace: bool = False) -> fl.Tensor:
    if alpha == 0:
        raise RuntimeError("[celu] expected a non-zero alpha, got 0")
    return (fl.celu_ if inplace else fl.celu)(input, alpha)


@composite()
def nn_silu(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl._ops.silu_(input) if inplace else fl._ops.silu(input)


@composite()
def nn_mish(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl._ops.mish_(input) if inplace else fl._ops.mish(input)


@composite()
def nn_hardsigmoid(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl._ops.hardsigmoid_(input) if inplace else fl._ops.hardsigmoid(input)


@composite()
def nn_hardswish(input: fl.Tensor, inplace: bool = False) -> fl.Tensor:
    return fl._ops.hardswish_(input) if inplace else fl._ops.hardswish(input)


@composite(out=True)
def nn_hardshrink(self: fl.Tensor, lambd: Scalar = 0.5) -> fl.Tensor:
    return fl.hardshrink(self, lambd)


@composite()
def nn_sigmoid(input: fl.Tensor) -> fl.Tensor:
    return fl.sigmoid(input)


@composite()
def nn_tanh(input: fl.Tensor) -> fl.Tensor:
    return fl.tanh(input)


@composite()
def nn_softsign(input: fl.Tensor) -> fl.Tensor:
    return input / (1 + fl.abs(input))


@composite()
def nn_tanhshrink(input: fl.Tensor) -> fl.Tensor:
    return input - fl.tanh(input)


@composite()
def nn_glu(input: fl.Tensor, dim: int = -1) -> fl.Tensor:
    if input.dim() == 0:
        raise RuntimeError("[glu] expected a dimension to halve, got a scalar tensor")
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"[glu] expected an even size in dimension {dim}, got {size}")
    value, gate = fl.chunk(input, 2, dim)
    return value * fl.sigmoid(gate)


@composite()
def nn_relu_(input: fl.Tensor) -> fl.Tensor:
    return fl.relu_(input)


@composite()
def nn_hardtanh_(input: fl.Tensor, min_val: float = -1.0, max_val: float = 1.0) -> fl.Tensor:
    return fl._ops.hardtanh_(input, min_val, max_val)


@composite()
def nn_threshold_(input: fl.Tensor, threshold: float, value: float) -> fl.Tensor:
    return fl.threshold_(input, threshold, value)


@composite()
def nn_leaky_relu_(input: fl.Tensor, negative_slope: float = 0.01) -> fl.Tensor:
    return fl._ops.leaky_relu_(input, negative_slope)


@composite()
def nn_rrelu_(input: fl.Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False) -> fl.Tensor:
    return fl.rrelu_(input, lower, upper, training)


@composite()
def nn_elu_(input: fl.Tensor, alpha: float = 1.0) -> fl.Tensor:
    return fl._ops.elu_(input, alpha)


@composite()
def nn_selu_(input: fl.Tensor) -> fl.Tensor:
    return fl.selu_(input)


@composite()
def nn_celu_(input: fl.Tensor, alpha: float = 1.0) -> fl.Tensor:
    return fl.celu_(input, alpha)


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "elu gelu hardtanh leaky_relu relu")
tag(
    "elementwise",
    "nn_celu nn_elu nn_hardshrink nn_hardsigmoid nn_hardswish nn_hardtanh nn_leaky_relu nn_mish nn_relu nn_relu6 "
    "nn_selu nn_sigmoid nn_silu nn_softsign nn_tanh nn_tanhshrink nn_threshold",
)
tag("keeps_zero", "relu")
tag("after_product", "relu relu6 hardtanh gelu silu hardswish leaky_relu")
tag("clips", "relu relu6 hardtanh")
tag(
    "piecewise_linear",
    "hardtanh leaky_relu nn_hardtanh nn_leaky_relu nn_prelu nn_relu6 nn_threshold prelu relu6 threshold",
)
tag("random", "nn_rrelu rrelu")
tag("signed_unit_grid", "nn_tanh")
tag("unit_grid", "hardsigmoid nn_hardsigmoid nn_sigmoid")
autocast("float32", "softplus", on="accelerator")
autocast("lower", "nn_prelu prelu")
node("EluBackward0", "selu")
node("HardtanhBackward0", "relu6")
