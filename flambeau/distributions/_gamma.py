"""Distributions made of gamma variables: Gamma, Chi2, Exponential, Beta, Dirichlet, FisherSnedecor."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution, ExponentialFamily, checked
from flambeau.distributions.utils import broadcast_all

__all__ = ["Beta", "Chi2", "Dirichlet", "Exponential", "FisherSnedecor", "Gamma"]


def standard_gamma(concentration: fl.Tensor) -> fl.Tensor:
    """Gamma variables of rate one, never zero, so that their logarithms are finite."""
    value = fl._standard_gamma(concentration)
    return value.clamp(min=fl.finfo(value.dtype).tiny)


def log_standard_gamma(concentration: fl.Tensor) -> fl.Tensor:
    """Logarithms of gamma variables of rate one, finite where the variables themselves underflow.

    A shape below one is raised by one and the draw scaled by a power of a uniform number.
    """
    boost = concentration < 1
    uniform = 1 - fl.rand_like(concentration)
    logarithm = standard_gamma(concentration + boost).log()
    return logarithm + fl.where(boost, uniform.log() / concentration, 0)


class Gamma(ExponentialFamily):
    """The gamma distribution with mean concentration / rate.

    >>> distributions.Gamma(3.0, 2.0).mean
    tensor(1.5000)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _event_dims = {"concentration": 0, "rate": 0}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> fl.Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> fl.Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> fl.Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        return standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)

    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return self._log_density(fl.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device))

    @checked
    def _log_density(self, value: fl.Tensor) -> fl.Tensor:
        shape, rate = self.concentration, self.rate
        return fl.xlogy(shape, rate) + fl.xlogy(shape - 1, value) - rate * value - fl.lgamma(shape)

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return fl.igamma(self.concentration, self.rate * value)

    def entropy(self) -> fl.Tensor:
        shape = self.concentration
        return shape - self.rate.log() + fl.lgamma(shape) + (1 - shape) * fl.digamma(shape)

    @property
    def _natural_params(self) -> tuple[fl.Tensor, fl.Tensor]:
        return (self.concentration - 1, -self.rate)

    def _log_normalizer(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return fl.lgamma(x + 1) - (x + 1) * (-y).log()


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal variables.

    >>> distributions.Chi2(3.0).mean
    tensor(3.)
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> fl.Tensor:
        return self.concentration * 2


class Exponential(ExponentialFamily):
    """Waiting times at a constant rate.

    >>> distributions.Exponential(2.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, rate=rate)

    @property
    def mean(self) -> fl.Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> fl.Tensor:
        return fl.zeros_like(self.rate)

    @property
    def stddev(self) -> fl.Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> fl.Tensor:
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return self.rate.log() - self.rate * value

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return -fl.expm1(-self.rate * value)

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return -fl.log1p(-value) / self.rate

    def entropy(self) -> fl.Tensor:
        return 1 - self.rate.log()

    @property
    def _natural_params(self) -> tuple[fl.Tensor]:
        return (-self.rate,)

    def _log_normalizer(self, x: fl.Tensor) -> fl.Tensor:
        return -(-x).log()


class Dirichlet(ExponentialFamily):
    """Points of the simplex: gamma variables divided by their sum.

    >>> distributions.Dirichlet(flambeau.tensor([1.0, 3.0])).mean
    tensor([0.2500, 0.7500])
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: fl.Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("[Dirichlet] expected a concentration of at least one dimension, got a number")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> fl.Tensor:
        excess = (self.concentration - 1).clamp(min=0)
        result = excess / excess.sum(-1, True)
        flat = (self.concentration < 1).all(-1)
        corner = fl.nn.functional.one_hot(result.argmax(-1), self.concentration.shape[-1]).to(result)
        return fl.where(flat.unsqueeze(-1), corner, result)

    @property
    def variance(self) -> fl.Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        sample = log_standard_gamma(self.concentration.expand(self._extended_shape(sample_shape))).softmax(-1)
        if sample.shape[-1] == 1:
            return sample
        # Inside the simplex after rounding, too: at its border the density has no logarithm.
        limits = fl.finfo(sample.dtype)
        with fl.no_grad():
            shift = sample.clamp(limits.tiny, 1 - limits.eps / 2) - sample
        return sample + shift

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        shape = self.concentration
        return fl.xlogy(shape - 1, value).sum(-1) + fl.lgamma(shape.sum(-1)) - fl.lgamma(shape).sum(-1)

    def entropy(self) -> fl.Tensor:
        k, shape = self.concentration.shape[-1], self.concentration
        total = shape.sum(-1)
        log_beta = fl.lgamma(shape).sum(-1) - fl.lgamma(total)
        return log_beta - (k - total) * fl.digamma(total) - ((shape - 1) * fl.digamma(shape)).sum(-1)

    @property
    def _natural_params(self) -> tuple[fl.Tensor]:
        return (self.concentration,)

    def _log_normalizer(self, x: fl.Tensor) -> fl.Tensor:
        return fl.lgamma(x).sum(-1) - fl.lgamma(x.sum(-1))


class Beta(ExponentialFamily):
    """Probabilities: the first of two Dirichlet variables.

    >>> distributions.Beta(2.0, 2.0).mean
    tensor(0.5000)
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True
    _nested = ("_dirichlet",)

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._dirichlet = Dirichlet(fl.stack(broadcast_all(concentration1, concentration0), -1), validate_args)
        super().__init__(self._dirichlet.batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> fl.Tensor:
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> fl.Tensor:
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> fl.Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> fl.Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> fl.Tensor:
        return self._dirichlet.variance[..., 0]

    def rsample(self, sample_shape: Any = ()) -> fl.Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return self._dirichlet.log_prob(fl.stack([value, 1 - value], -1))

    def entropy(self) -> fl.Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[fl.Tensor, fl.Tensor]:
        return (self.concentration1, self.concentration0)

    def _log_normalizer(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return fl.lgamma(x) + fl.lgamma(y) - fl.lgamma(x + y)


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variables, each divided by its degrees of freedom.

    >>> distributions.FisherSnedecor(2.0, 4.0).mean
    tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, df1=df1, df2=df2)

    @property
    def mean(self) -> fl.Tensor:
        return (self.df2 / (self.df2 - 2)).masked_fill(self.df2 <= 2, math.nan)

    @property
    def mode(self) -> fl.Tensor:
        result = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return result.masked_fill(self.df1 <= 2, math.nan)

    @property
    def variance(self) -> fl.Tensor:
        a, b = self.df1, self.df2
        result = 2 * b.pow(2) * (a + b - 2) / (a * (b - 2).pow(2) * (b - 4))
        return result.masked_fill(b <= 4, math.nan)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        above = standard_gamma(self.df1.expand(shape) / 2) / self.df1
        below = standard_gamma(self.df2.expand(shape) / 2) / self.df2
        return (above / below).clamp(min=fl.finfo(above.dtype).tiny)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        log_beta = fl.lgamma(a) + fl.lgamma(b) - fl.lgamma(a + b)
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * fl.log1p(ratio * value) - log_beta
