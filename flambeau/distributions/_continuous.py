"""Continuous distributions of numbers with a location or a range."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution, ExponentialFamily, checked
from flambeau.distributions.utils import (
    _standard_normal,
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    open_uniform,
    probs_to_logits,
)

__all__ = [
    "Cauchy", "ContinuousBernoulli", "GeneralizedPareto", "Laplace", "Normal", "StudentT", "Uniform", "VonMises",
]  # fmt: skip

LOG_SQRT_2PI = math.log(2 * math.pi) / 2


class _LocationScale(Distribution):
    """Symmetric about `loc`, where mean and mode are."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> fl.Tensor:
        return self.loc

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    def _standard(self, value: fl.Tensor) -> fl.Tensor:
        return (value - self.loc) / self.scale


class Normal(_LocationScale, ExponentialFamily):
    """The normal distribution with mean `loc` and standard deviation `scale`.

    >>> distributions.Normal(0.0, 1.0).log_prob(flambeau.tensor(0.0))
    tensor(-0.9189)
    """

    _mean_carrier_measure = 0

    @property
    def stddev(self) -> fl.Tensor:
        return self.scale

    @property
    def variance(self) -> fl.Tensor:
        return self.scale.pow(2)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        with fl.no_grad():
            return fl.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + noise * self.scale

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return -self._standard(value).pow(2) / 2 - self.scale.log() - LOG_SQRT_2PI

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return (1 + fl.erf(self._standard(value) / math.sqrt(2))) / 2

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return self.loc + self.scale * fl.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> fl.Tensor:
        return 0.5 + LOG_SQRT_2PI + self.scale.log()

    @property
    def _natural_params(self) -> tuple[fl.Tensor, fl.Tensor]:
        return (self.loc / self.variance, -0.5 / self.variance)

    def _log_normalizer(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return -x.pow(2) / (4 * y) + (-math.pi / y).log() / 2


class Laplace(_LocationScale):
    """Two exponential distributions back to back.

    >>> distributions.Laplace(0.0, 2.0).variance
    tensor(8.)
    """

    @property
    def stddev(self) -> fl.Tensor:
        return math.sqrt(2) * self.scale

    @property
    def variance(self) -> fl.Tensor:
        return 2 * self.scale.pow(2)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        u = 2 * open_uniform(shape, self.loc) - 1
        return self.loc - self.scale * u.sign() * fl.log1p(-u.abs().clamp(max=1 - fl.finfo(u.dtype).eps / 2))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return -(2 * self.scale).log() - self._standard(value).abs()

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        z = self._standard(value)
        return 0.5 - z.sign() * fl.expm1(-z.abs()) / 2

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        centred = value - 0.5
        return self.loc - self.scale * centred.sign() * fl.log1p(-2 * centred.abs())

    def entropy(self) -> fl.Tensor:
        return 1 + (2 * self.scale).log()


class Cauchy(_LocationScale):
    """The ratio of two normal variables; it has neither mean nor variance.

    >>> distributions.Cauchy(0.0, 1.0).cdf(flambeau.tensor(1.0))
    tensor(0.7500)
    """

    @property
    def mean(self) -> fl.Tensor:
        return fl.full(self._extended_shape(), math.nan, dtype=self.loc.dtype, device=self.loc.device)

    @property
    def variance(self) -> fl.Tensor:
        return fl.full(self._extended_shape(), math.inf, dtype=self.loc.dtype, device=self.loc.device)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        noise = self.loc.new_empty(self._extended_shape(sample_shape)).cauchy_()
        return self.loc + noise * self.scale

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return -math.log(math.pi) - self.scale.log() - self._standard(value).pow(2).log1p()

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return fl.atan(self._standard(value)) / math.pi + 0.5

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return fl.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> fl.Tensor:
        return math.log(4 * math.pi) + self.scale.log()


class StudentT(Distribution):
    """A normal variable whose variance is that of a sample of `df + 1`.

    >>> distributions.StudentT(4.0).variance
    tensor(2.)
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, df=df, loc=loc, scale=scale)

    @property
    def mean(self) -> fl.Tensor:
        return self.loc.masked_fill(self.df <= 1, math.nan)

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    @property
    def variance(self) -> fl.Tensor:
        df = self.df
        result = self.scale.pow(2) * df / (df - 2)
        return result.masked_fill(df <= 2, math.inf).masked_fill(df <= 1, math.nan)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        noise = _standard_normal(shape, self.df.dtype, self.df.device)
        squares = 2 * fl._standard_gamma(self.df.expand(shape) / 2)
        return self.loc + self.scale * noise * fl.rsqrt(squares.clamp(min=fl.finfo(squares.dtype).tiny) / self.df)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        z, df = (value - self.loc) / self.scale, self.df
        normalizer = (
            self.scale.log() + (df * math.pi).log() / 2 + fl.lgamma(df / 2) - fl.lgamma((df + 1) / 2)
        )  # fmt: skip
        return -(df + 1) / 2 * fl.log1p(z.pow(2) / df) - normalizer

    def entropy(self) -> fl.Tensor:
        half, more = self.df / 2, (self.df + 1) / 2
        log_beta = fl.lgamma(half) + math.lgamma(0.5) - fl.lgamma(more)
        return self.scale.log() + more * (fl.digamma(more) - fl.digamma(half)) + self.df.log() / 2 + log_beta


class Uniform(Distribution):
    """All values from `low` up to but not including `high`.

    >>> distributions.Uniform(0.0, 4.0).mean
    tensor(2.)
    """

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, low=low, high=high)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> fl.Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> fl.Tensor:
        return math.nan * self.high

    @property
    def stddev(self) -> fl.Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> fl.Tensor:
        return (self.high - self.low).pow(2) / 12

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        u = fl.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        inside = (self.low <= value) & (value < self.high)
        return inside.type_as(self.low).log() - (self.high - self.low).log()

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> fl.Tensor:
        return (self.high - self.low).log()


class VonMises(Distribution):
    """The circular normal distribution: angles about `loc`.

    >>> distributions.VonMises(0.0, 1.0).log_prob(flambeau.tensor(0.0))
    tensor(-1.0738)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> fl.Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> fl.Tensor:
        """The circular variance."""
        return 1 - fl.special.i1e(self.concentration) / fl.special.i0e(self.concentration)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        # i0e is I0 times exp(-concentration): the exponent is taken back in here, so that nothing overflows.
        cosine = fl.cos(value - self.loc) - 1
        return self.concentration * cosine - math.log(2 * math.pi) - fl.special.i0e(self.concentration).log()

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        """Rejection from a wrapped Cauchy distribution, in double precision."""
        shape = self._extended_shape(sample_shape)
        with fl.no_grad():
            kappa = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * kappa.pow(2)).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
            # For small concentrations the envelope's parameter loses its digits; its expansion does not.
            envelope = fl.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho.pow(2)) / (2 * rho))
            angle = fl.zeros_like(kappa)
            pending = fl.ones(shape, dtype=fl.bool, device=kappa.device)
            while pending.any():
                u1, u2, u3 = fl.rand((3, *shape), dtype=fl.float64, device=kappa.device).unbind()
                z = fl.cos(math.pi * u1)
                f = (1 + envelope * z) / (envelope + z)
                c = kappa * (envelope - f)
                accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                angle = fl.where(pending & accepted, (u3 - 0.5).sign() * f.clamp(-1, 1).acos(), angle)
                pending = pending & ~accepted
            return (angle + math.pi + self.loc).remainder(2 * math.pi).sub(math.pi).to(self.loc.dtype)


class GeneralizedPareto(Distribution):
    """Excesses over a threshold: exponential at concentration 0, with heavy tails above and an end below it.

    >>> distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = fl.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, end)

    def _exponential(self) -> tuple[fl.Tensor, fl.Tensor]:
        """Where the concentration counts as zero, and the concentration made safe to divide by."""
        zero = fl.isclose(self.concentration, fl.zeros_like(self.concentration))
        return zero, fl.where(zero, fl.ones_like(self.concentration), self.concentration)

    def _cumulative_hazard(self, value: fl.Tensor) -> fl.Tensor:
        zero, shape = self._exponential()
        z = (value - self.loc) / self.scale
        return fl.where(zero, z, fl.log1p(shape * z) / shape)

    @property
    def mean(self) -> fl.Tensor:
        result = self.loc + self.scale / (1 - self.concentration)
        return fl.where(self.concentration < 1, result, math.nan)

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    @property
    def variance(self) -> fl.Tensor:
        shape = self.concentration
        result = self.scale.pow(2) / ((1 - shape).pow(2) * (1 - 2 * shape))
        return fl.where(shape < 0.5, result, math.nan)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return self._quantile(open_uniform(self._extended_shape(sample_shape), self.loc))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return -self.scale.log() - (1 + self.concentration) * self._cumulative_hazard(value)

    def log_survival_function(self, value: fl.Tensor) -> fl.Tensor:
        return -self._cumulative_hazard(value)

    @checked
    def log_cdf(self, value: fl.Tensor) -> fl.Tensor:
        return (-fl.expm1(-self._cumulative_hazard(value))).log()

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return -fl.expm1(-self._cumulative_hazard(value))

    def _quantile(self, value: fl.Tensor) -> fl.Tensor:
        zero, shape = self._exponential()
        hazard = -fl.log1p(-value)
        return self.loc + self.scale * fl.where(zero, hazard, fl.expm1(shape * hazard) / shape)

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return self._quantile(value)

    def entropy(self) -> fl.Tensor:
        return self.scale.log() + self.concentration + 1


class ContinuousBernoulli(ExponentialFamily):
    """Densities on [0, 1] proportional to probs^x (1 - probs)^(1 - x).

    Near probs = 1/2, within `lims`, the formulas divide zero by zero, and their Taylor polynomials are used.

    >>> distributions.ContinuousBernoulli(0.3).mean
    tensor(0.4302)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("[ContinuousBernoulli] expected either probs or logits, got both or neither")
        if probs is not None:
            (self.probs,) = broadcast_all(probs)
            if validate_args and not constraints.unit_interval.check(self.probs).all():
                raise ValueError(f"[ContinuousBernoulli] expected probs within [0, 1], got {self.probs}")
            self.probs = clamp_probs(self.probs)
        else:
            (self.logits,) = broadcast_all(logits)
        self._lims = lims
        super().__init__(self._param.size(), validate_args=validate_args)

    @property
    def _param(self) -> fl.Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    def _new(self, *args: Any, **kwargs: Any) -> fl.Tensor:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> fl.Tensor:
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> fl.Tensor:
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    @property
    def param_shape(self) -> fl.Size:
        return self._param.size()

    def _split(self) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
        """Where the formulas are stable, probs moved to where they are, and the distance from 1/2."""
        stable = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return stable, fl.where(stable, self.probs, self._lims[0] * fl.ones_like(self.probs)), self.probs - 0.5

    def _cont_bern_log_norm(self) -> fl.Tensor:
        stable, p, x = self._split()
        ratio = (fl.log1p(-p) - p.log()) / (1 - 2 * p)  # 2 atanh(1 - 2p) / (1 - 2p)
        return fl.where(stable, ratio.log(), math.log(2) + (4 / 3 + 104 / 45 * x.pow(2)) * x.pow(2))

    @property
    def mean(self) -> fl.Tensor:
        stable, p, x = self._split()
        result = p / (2 * p - 1) + 1 / (fl.log1p(-p) - p.log())
        return fl.where(stable, result, 0.5 + (1 / 3 + 16 / 45 * x.pow(2)) * x)

    @property
    def stddev(self) -> fl.Tensor:
        return self.variance.sqrt()

    @property
    def variance(self) -> fl.Tensor:
        stable, p, x = self._split()
        result = p * (p - 1) / (1 - 2 * p).pow(2) + 1 / (fl.log1p(-p) - p.log()).pow(2)
        return fl.where(stable, result, 1 / 12 - (1 / 15 - 128 / 945 * x.pow(2)) * x.pow(2))

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(fl.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        logits, value = broadcast_all(self.logits, value)
        cross = F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - cross

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        stable, p, _ = self._split()
        result = (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1)
        result = fl.where(stable, result, value)
        return fl.where(value <= 0, fl.zeros_like(value), fl.where(value >= 1, fl.ones_like(value), result))

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        stable, p, _ = self._split()
        result = (fl.log1p(-p + value * (2 * p - 1)) - fl.log1p(-p)) / (p.log() - fl.log1p(-p))
        return fl.where(stable, result, value)

    def entropy(self) -> fl.Tensor:
        log0, log1 = fl.log1p(-self.probs), self.probs.log()
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    @property
    def _natural_params(self) -> tuple[fl.Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: fl.Tensor) -> fl.Tensor:
        """log((exp(x) - 1) / x)."""
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        stable = (x <= low) | (x > high)
        safe = fl.where(stable, x, low * fl.ones_like(x))
        near = x / 2 + x.pow(2) / 24 - x.pow(4) / 2880
        return fl.where(stable, fl.expm1(safe).abs().log() - safe.abs().log(), near)
