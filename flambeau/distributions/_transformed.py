"""Distributions that are a transform of another one, with what is known about them in closed form."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.distributions import constraints
from flambeau.distributions._composed import TransformedDistribution
from flambeau.distributions._continuous import Cauchy, Normal, Uniform
from flambeau.distributions._discrete import Categorical, _OfCategorical, _OfProbs
from flambeau.distributions._gamma import Exponential, Gamma
from flambeau.distributions.distribution import checked
from flambeau.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    StickBreakingTransform,
)
from flambeau.distributions.utils import broadcast_all, clamp_probs, euler_constant, open_uniform

__all__ = [
    "ExpRelaxedCategorical", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy", "LogNormal",
    "LogisticNormal", "LogitRelaxedBernoulli", "Pareto", "RelaxedBernoulli", "RelaxedOneHotCategorical", "Weibull",
]  # fmt: skip


def of_base(name: str) -> property:
    """An attribute of the base distribution."""
    return property(lambda self: getattr(self.base_dist, name))


class LogNormal(TransformedDistribution):
    """The exponential of a normal variable.

    >>> distributions.LogNormal(0.0, 1.0).mean
    tensor(1.6487)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True
    loc = of_base("loc")
    scale = of_base("scale")

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> fl.Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> fl.Tensor:
        squared = self.scale.pow(2)
        return squared.expm1() * (2 * self.loc + squared).exp()

    def entropy(self) -> fl.Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """Probabilities broken off a stick by normal variables.

    >>> distributions.LogisticNormal(flambeau.zeros(2), flambeau.ones(2)).sample().shape
    torch.Size([3])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> fl.Tensor:
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> fl.Tensor:
        return self.base_dist.base_dist.scale


class _Half(TransformedDistribution):
    """The absolute value of a variable that is symmetric about zero."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    scale = of_base("scale")

    @property
    def mode(self) -> fl.Tensor:
        return fl.zeros_like(self.scale)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        value = fl.as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return fl.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> fl.Tensor:
        return self.base_dist.entropy() - math.log(2)


class HalfNormal(_Half):
    """The absolute value of a normal variable.

    >>> distributions.HalfNormal(1.0).mean
    tensor(0.7979)
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> fl.Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The absolute value of a Cauchy variable.

    >>> distributions.HalfCauchy(1.0).cdf(flambeau.tensor(1.0))
    tensor(0.5000)
    """

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return fl.full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    variance = of_base("variance")


class Gumbel(TransformedDistribution):
    """The largest of many variables: -log(-log(u)) of a uniform one.

    >>> distributions.Gumbel(0.0, 1.0).mean
    tensor(0.5772)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = fl.finfo(self.loc.dtype)
        base = Uniform(
            fl.full_like(self.loc, info.tiny), fl.full_like(self.loc, 1 - info.eps), validate_args=validate_args
        )
        transforms = [
            ExpTransform().inv,
            AffineTransform(loc=0, scale=-fl.ones_like(self.scale)),
            ExpTransform().inv,
            AffineTransform(loc=self.loc, scale=-self.scale),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    @property
    def stddev(self) -> fl.Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> fl.Tensor:
        return self.stddev.pow(2)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        z = (self.loc - value) / self.scale
        return z - z.exp() - self.scale.log()

    def entropy(self) -> fl.Tensor:
        return self.scale.log() + 1 + euler_constant


class Pareto(TransformedDistribution):
    """Power laws above `scale`.

    >>> distributions.Pareto(1.0, 2.0).mean
    tensor(2.)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> fl.Tensor:
        return (self.alpha * self.scale / (self.alpha - 1)).masked_fill(self.alpha <= 1, math.inf)

    @property
    def mode(self) -> fl.Tensor:
        return self.scale

    @property
    def variance(self) -> fl.Tensor:
        a = self.alpha
        return (self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))).masked_fill(a <= 2, math.inf)

    def entropy(self) -> fl.Tensor:
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class Weibull(TransformedDistribution):
    """A power of an exponential variable: lifetimes with a falling or rising risk.

    >>> distributions.Weibull(1.0, 2.0).mean
    tensor(0.8862)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        base = Exponential(fl.ones_like(self.scale), validate_args=validate_args)
        transforms = [PowerTransform(self.concentration.reciprocal()), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, order: int) -> fl.Tensor:
        return fl.lgamma(1 + order * self.concentration.reciprocal()).exp()

    @property
    def mean(self) -> fl.Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> fl.Tensor:
        return self.scale * ((self.concentration - 1) / self.concentration).pow(self.concentration.reciprocal())

    @property
    def variance(self) -> fl.Tensor:
        return self.scale.pow(2) * (self._moment(2) - self._moment(1).pow(2))

    def entropy(self) -> fl.Tensor:
        inverse = self.concentration.reciprocal()
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1


class Kumaraswamy(TransformedDistribution):
    """Like a beta variable, with a cumulative distribution in closed form.

    >>> distributions.Kumaraswamy(2.0, 2.0).mean
    tensor(0.5333)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(fl.zeros_like(self.concentration0), fl.ones_like(self.concentration0), validate_args=validate_args)  # fmt: skip
        transforms = [
            PowerTransform(self.concentration0.reciprocal()),
            AffineTransform(1.0, -1.0),
            PowerTransform(self.concentration1.reciprocal()),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, order: int) -> fl.Tensor:
        a, b = 1 + order / self.concentration1, self.concentration0
        return b * (fl.lgamma(a) + fl.lgamma(b) - fl.lgamma(a + b)).exp()

    @property
    def mean(self) -> fl.Tensor:
        return self._moment(1)

    @property
    def mode(self) -> fl.Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = ((a - 1).log() - (a * b - 1).log()) / a
        return log_mode.exp().masked_fill((a < 1) | (b < 1), math.nan)

    @property
    def variance(self) -> fl.Tensor:
        return self._moment(2) - self._moment(1).pow(2)

    def entropy(self) -> fl.Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = fl.digamma(b + 1) + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()


class InverseGamma(TransformedDistribution):
    """The reciprocal of a gamma variable.

    >>> distributions.InverseGamma(3.0, 2.0).mean
    tensor(1.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True
    concentration = of_base("concentration")
    rate = of_base("rate")

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return (self.rate / (self.concentration - 1)).masked_fill(self.concentration <= 1, math.inf)

    @property
    def mode(self) -> fl.Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> fl.Tensor:
        a = self.concentration
        return (self.rate.pow(2) / ((a - 1).pow(2) * (a - 2))).masked_fill(a <= 2, math.inf)

    def entropy(self) -> fl.Tensor:
        a = self.concentration
        return a + self.rate.log() + fl.lgamma(a) - (1 + a) * fl.digamma(a)


# ---------------------------------------------------------------- relaxations of discrete variables


class LogitRelaxedBernoulli(_OfProbs):
    """The logit of a relaxed Bernoulli variable."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        name = "logits" if probs is None else "probs"
        self._adopt(validate_args, **{name: self._choose(probs, logits)})

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(fl.rand(shape, dtype=probs.dtype, device=probs.device))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value * self.temperature
        return self.temperature.log() + difference - 2 * F.softplus(difference)


class RelaxedBernoulli(TransformedDistribution):
    """A Bernoulli variable made continuous, so that it has gradients; it is sharp at low temperatures.

    >>> distributions.RelaxedBernoulli(0.5, probs=flambeau.tensor([0.3, 0.7])).rsample().shape
    torch.Size([2])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    temperature = of_base("temperature")
    logits = of_base("logits")
    probs = of_base("probs")

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)


class ExpRelaxedCategorical(_OfCategorical):
    """The logarithm of a relaxed one-hot categorical variable."""

    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        noise = -(-open_uniform(shape, self.logits).log()).log()
        return fl.log_softmax((self.logits + noise) / self.temperature, -1)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        n = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        scores = fl.log_softmax(logits - value * self.temperature, -1).sum(-1)
        return scores + math.lgamma(n) + (n - 1) * self.temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """A one-hot categorical variable made continuous: a point of the simplex, near a corner at low temperatures.

    >>> distributions.RelaxedOneHotCategorical(0.5, flambeau.ones(3)).rsample().shape
    torch.Size([3])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True
    temperature = of_base("temperature")
    logits = of_base("logits")
    probs = of_base("probs")

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)
