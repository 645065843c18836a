"""Random numbers: distributions in place, factories, sampling from tensors of parameters, and dropout.

Every number is a function of the generator's seed, the call's offset and the element's index (csrc/core/philox.h).
"""

from __future__ import annotations

import math

import flambeau as fl
from flambeau.ops.record import composite, native, tag, vjp
from flambeau.ops.values import all_values

RANDOM = ("random",)
FACTORY = "dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False"
LIKE = f"{FACTORY}, memory_format? memory_format=None"

# ---------------------------------------------------------------- in place

for schema in (
    "uniform_(Tensor(!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor",
    "normal_(Tensor(!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor",
    "exponential_(Tensor(!) self, float lambd=1, *, Generator? generator=None) -> Tensor",
    "cauchy_(Tensor(!) self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor",
    "log_normal_(Tensor(!) self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor",
    "geometric_(Tensor(!) self, float p, *, Generator? generator=None) -> Tensor",
    "random_(Tensor(!) self, *, Generator? generator=None) -> Tensor",
    "random_.to(Tensor(!) self, int to, *, Generator? generator=None) -> Tensor",
    "random_.from(Tensor(!) self, int from, int? to, *, Generator? generator=None) -> Tensor",
    "bernoulli_.Tensor(Tensor(!) self, Tensor p, *, Generator? generator=None) -> Tensor",
    "bernoulli_.float(Tensor(!) self, float p=0.5, *, Generator? generator=None) -> Tensor",
):
    native(schema, function=False, tags=RANDOM)

# ---------------------------------------------------------------- factories

native(f"rand(int[] size, *, Generator? generator=None, {FACTORY}) -> Tensor", out=True, tags=RANDOM)
native(f"randn(int[] size, *, Generator? generator=None, {FACTORY}) -> Tensor", out=True, tags=RANDOM)
native(f"randint(int high, int[] size, *, Generator? generator=None, {FACTORY}) -> Tensor", out=True, tags=RANDOM)
native(
    f"randint.low(int low, int high, int[] size, *, Generator? generator=None, {FACTORY}) -> Tensor",
    out=True,
    tags=RANDOM,
)
native(f"randperm(int n, *, Generator? generator=None, {FACTORY}) -> Tensor", out=True, tags=RANDOM)
LIKE_TAGS = ("random", "no_grad")
native(f"rand_like(Tensor self, *, Generator? generator=None, {LIKE}) -> Tensor", method=False, tags=LIKE_TAGS)
native(f"randn_like(Tensor self, *, Generator? generator=None, {LIKE}) -> Tensor", method=False, tags=LIKE_TAGS)
native(
    f"randint_like(Tensor self, int high, *, Generator? generator=None, {LIKE}) -> Tensor", method=False, tags=LIKE_TAGS
)
native(
    f"randint_like.low_dtype(Tensor self, int low, int high, *, Generator? generator=None, {LIKE}) -> Tensor",
    method=False,
    tags=LIKE_TAGS,
)

# ---------------------------------------------------------------- sampling from tensors

native("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor", out=True, tags=RANDOM)
native("multinomial(Tensor self, int num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor", out=True, tags=RANDOM)  # fmt: skip
native("poisson(Tensor self, Generator? generator=None) -> Tensor", method=False, tags=RANDOM)
native("binomial(Tensor count, Tensor prob, Generator? generator=None) -> Tensor", tags=RANDOM)
native("_standard_gamma(Tensor self, Generator? generator=None) -> Tensor", module="", method=False, tags=RANDOM)
native("_sample_dirichlet(Tensor self, Generator? generator=None) -> Tensor", module="", method=False, tags=RANDOM)


@composite("bernoulli.p")
def bernoulli_p(self: fl.Tensor, p: float, *, generator: fl.Generator | None = None) -> fl.Tensor:
    return self.new_empty(self.shape).bernoulli_(p, generator=generator)


def check_std(std: fl.Tensor | float) -> None:
    if isinstance(std, fl.Tensor):
        if std.is_complex():
            raise RuntimeError("[normal] expected a real std, got a complex tensor")
        if std.numel() and std.device.type != "meta" and not bool((all_values(std) >= 0).all()):
            raise RuntimeError("[normal] expected all elements of std >= 0, got a negative one")
    elif std < 0:
        raise RuntimeError(f"[normal] expected std >= 0, got {std}: normal expects std >= 0.0, but found std {std}")


@composite("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor", out=True)
@composite("normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor", out=True)
@composite("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor", out=True)
def normal_tensor(
    mean: fl.Tensor | float, std: fl.Tensor | float = 1.0, *, generator: fl.Generator | None = None
) -> fl.Tensor:
    check_std(std)
    differentiable = [x for x in (mean, std) if isinstance(x, fl.Tensor) and x.requires_grad]
    mean, std = (x.detach() if isinstance(x, fl.Tensor) else x for x in (mean, std))
    like = mean + std if isinstance(mean, fl.Tensor) and isinstance(std, fl.Tensor) else mean
    like = like if isinstance(like, fl.Tensor) else std
    dtype = mean.dtype if isinstance(mean, fl.Tensor) else std.dtype  # type: ignore[union-attr]
    noise = fl.randn(like.shape, dtype=dtype, device=like.device, generator=generator)  # type: ignore[union-attr]
    drawn = (noise * std + mean).to(dtype)
    if fl.is_grad_enabled():
        # The parameters take part in the graph, and their gradients are zero.
        yes = fl.ones((), dtype=fl.bool, device=drawn.device)
        for x in differentiable:
            drawn = fl.where(yes, drawn, x.to(dtype))
    return drawn


@composite(
    f"normal.float_float(float mean, float std, int[] size, *, Generator? generator=None, {FACTORY}) -> Tensor",
    out=True,
)
def normal_size(
    mean: float,
    std: float,
    size: list[int],
    *,
    generator: fl.Generator | None = None,
    dtype: fl.dtype | None = None,
    layout: fl.layout | None = None,
    device: fl.device | None = None,
    pin_memory: bool | None = False,
) -> fl.Tensor:
    return fl.empty(size, dtype=dtype, device=device).normal_(mean, std, generator=generator)


# ---------------------------------------------------------------- dropout

native("native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)", tags=RANDOM)


def check_probability(op: str, p: float, error: type[Exception] = RuntimeError) -> None:
    if not 0.0 <= p <= 1.0:
        raise error(f"[{op}] expected a probability in [0, 1], got {p}")


def feature_noise(input: fl.Tensor, p: float) -> fl.Tensor:
    """One number of the Bernoulli distribution for each channel: 1 with probability 1 - p."""
    if input.dim() < 2:
        raise RuntimeError(f"[feature_dropout] expected at least 2 dimensions, got {input.dim()}")
    shape = [size if i < 2 else 1 for i, size in enumerate(input.shape)]
    return input.new_empty(shape).bernoulli_(1 - p)


def alpha_affine(p: float) -> tuple[float, float, float]:
    """Scale, shift and fill with which alpha dropout keeps mean 0 and variance 1 under SELU."""
    alpha = 1.7580993408473766
    scale = 1.0 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
    return scale, scale * alpha * p, -alpha


def alpha_noise(input: fl.Tensor, noise: fl.Tensor, p: float) -> fl.Tensor:
    scale, shift, fill = alpha_affine(p)
    return input * (noise * scale) + ((1 - noise) * (fill * scale) + shift)


@composite(method=False)
def dropout(input: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    check_probability("dropout", p)
    if p == 0 or not train or input.numel() == 0:
        return input
    return fl.native_dropout(input, p, True)[0]


@composite("dropout_(Tensor(!) self, float p, bool train) -> Tensor", method=False)
def dropout_(self: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    check_probability("dropout", p)
    if p == 0 or not train or self.numel() == 0:
        return self
    return self.copy_(fl.native_dropout(self, p, True)[0])


@composite(method=False)
def feature_dropout(input: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    check_probability("feature_dropout", p)
    if p == 0 or not train or input.numel() == 0:
        return input
    return input * 0 if p == 1 else input * feature_noise(input, p).div_(1 - p)


@composite(method=False)
def alpha_dropout(input: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    check_probability("alpha_dropout", p)
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return input * 0
    noise = input.new_empty(input.shape).bernoulli_(1 - p)
    return alpha_noise(input, noise, p)


@composite(method=False)
def feature_alpha_dropout(input: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    check_probability("feature_alpha_dropout", p)
    if p == 0 or not train or input.numel() == 0:
        return input
    return input * 0 if p == 1 else alpha_noise(input, feature_noise(input, p), p)


@composite("feature_dropout_(Tensor(!) self, float p, bool train) -> Tensor", method=False)
def feature_dropout_(self: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    return self.copy_(fl.feature_dropout(self, p, train))


@composite("alpha_dropout_(Tensor(!) self, float p, bool train) -> Tensor", method=False)
def alpha_dropout_(self: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    return self.copy_(fl.alpha_dropout(self, p, train))


@composite("feature_alpha_dropout_(Tensor(!) self, float p, bool train) -> Tensor", method=False)
def feature_alpha_dropout_(self: fl.Tensor, p: float, train: bool) -> fl.Tensor:
    return self.copy_(fl.feature_alpha_dropout(self, p, train))


# ---------------------------------------------------------------- nn.functional


@composite()
def nn_dropout(input: fl.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> fl.Tensor:
    check_probability("dropout", p, ValueError)
    return (fl.dropout_ if inplace else fl.dropout)(input, p, training)


@composite()
def nn_alpha_dropout(input: fl.Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> fl.Tensor:
    check_probability("alpha_dropout", p, ValueError)
    return (fl.alpha_dropout_ if inplace else fl.alpha_dropout)(input, p, training)


@composite()
def nn_feature_alpha_dropout(
    input: fl.Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> fl.Tensor:
    check_probability("feature_alpha_dropout", p, ValueError)
    return (fl.feature_alpha_dropout_ if inplace else fl.feature_alpha_dropout)(input, p, training)


@composite("nn_dropout1d")
def dropout1d(input: fl.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> fl.Tensor:
    check_probability("dropout1d", p, ValueError)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"[dropout1d] expected 2 or 3 dimensions, got {input.dim()}")
    batch = input if input.dim() == 3 else input.unsqueeze(0)
    out = (fl.feature_dropout_ if inplace else fl.feature_dropout)(batch, p, training)
    return out if input.dim() == 3 else out.squeeze(0)


@composite("nn_dropout2d")
def dropout2d(input: fl.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> fl.Tensor:
    check_probability("dropout2d", p, ValueError)
    return (fl.feature_dropout_ if inplace else fl.feature_dropout)(input, p, training)


@composite("nn_dropout3d")
def dropout3d(input: fl.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> fl.Tensor:
    check_probability("dropout3d", p, ValueError)
    batch = input.unsqueeze(0) if input.dim() == 4 else input
    out = (fl.feature_dropout_ if inplace else fl.feature_dropout)(batch, p, training)
    return out.squeeze(0) if input.dim() == 4 else out


# ---------------------------------------------------------------- derivatives


@vjp("uniform_", "normal_", "exponential_", "cauchy_", "log_normal_", "geometric_", "random_", "random_.to", "random_.from",
     "bernoulli_.float", "bernoulli", "poisson")  # fmt: skip
def overwritten_vjp(g: fl.Tensor) -> fl.Tensor:
    """What is drawn does not depend on what was there."""
    return fl.zeros_like(g)


@vjp("bernoulli_.Tensor", "binomial")
def drawn_vjp(g: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return None, None


@vjp("_standard_gamma")
def standard_gamma_vjp(g: fl.Tensor, self: fl.Tensor, out: fl.Tensor) -> fl.Tensor:
    """With the quantile kept, dx/da = -(dF/da) / (dF/dx), F being the distribution; dF/da by a central difference."""
    a, x = self.detach().double(), out.detach().double()
    step = 1e-5 * a
    derivative = (fl.igamma(a + step, x) - fl.igamma(a - step, x)) / (2 * step)
    log_density = (a - 1) * x.log() - x - fl.lgamma(a)
    return g * (-derivative * (-log_density).exp()).to(g.dtype)


@vjp("native_dropout")
def native_dropout_vjp(g0: fl.Tensor, p: float, train: bool, out1: fl.Tensor) -> fl.Tensor:
    if train is False:
        return g0
    zero = fl.zeros((), dtype=g0.dtype, device=g0.device)
    return fl.addcmul(zero, g0, out1, value=0.0 if p == 1 else 1 / (1 - p))  # both factors in one pass


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "native_dropout rand randn randperm")
tag(
    "only_draws",
    "bernoulli_.float cauchy_ exponential_ geometric_ log_normal_ normal_ rand rand_like randint randint_like randn "
    "randn_like random_ uniform_",
)
tag(
    "dropout",
    "alpha_dropout alpha_dropout_ dropout dropout_ feature_alpha_dropout feature_alpha_dropout_ feature_dropout "
    "feature_dropout_ nn_alpha_dropout nn_dropout nn_dropout1d nn_dropout2d nn_dropout3d nn_feature_alpha_dropout",
)
tag("elementwise", "alpha_dropout dropout nn_alpha_dropout nn_dropout rand_like randint_like randn_like")
tag(
    "random",
    "alpha_dropout alpha_dropout_ dropout dropout_ feature_alpha_dropout feature_alpha_dropout_ feature_dropout "
    "feature_dropout_ native_dropout nn_alpha_dropout nn_dropout nn_dropout1d nn_dropout2d nn_dropout3d "
    "nn_feature_alpha_dropout normal",
)
