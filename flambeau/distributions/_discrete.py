"""Distributions of counts and classes."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.distributions import constraints
from flambeau.distributions._gamma import standard_gamma
from flambeau.distributions.distribution import Distribution, ExponentialFamily, checked
from flambeau.distributions.utils import broadcast_all, lazy_property, logits_to_probs, open_uniform, probs_to_logits

__all__ = [
    "Bernoulli", "Binomial", "Categorical", "Geometric", "Multinomial", "NegativeBinomial", "OneHotCategorical",
    "OneHotCategoricalStraightThrough", "Poisson",
]  # fmt: skip


class _OfProbs(Distribution):
    """Given by `probs` or by `logits`; the other one is computed when asked for."""

    _binary = True

    def _choose(self, probs: Any, logits: Any) -> Any:
        if (probs is None) == (logits is None):
            raise ValueError(f"[{type(self).__name__}] expected either probs or logits, got both or neither")
        return logits if probs is None else probs

    @property
    def _param(self) -> fl.Tensor:
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.__dict__["logits"]

    def _new(self, *args: Any, **kwargs: Any) -> fl.Tensor:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> fl.Tensor:
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> fl.Tensor:
        return logits_to_probs(self.logits, is_binary=self._binary)

    @property
    def param_shape(self) -> fl.Size:
        return self._param.size()

    def _unrolled(self, values: fl.Tensor, expand: bool) -> fl.Tensor:
        """A list of values as a first dimension before the batch."""
        values = values.view((-1, *[1] * len(self._batch_shape)))
        return values.expand((-1, *self._batch_shape)) if expand else values


class Bernoulli(_OfProbs, ExponentialFamily):
    """One with probability `probs`, else zero.

    >>> distributions.Bernoulli(0.25).log_prob(flambeau.tensor(1.0))
    tensor(-1.3863)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name = "logits" if probs is None else "probs"
        self._adopt(validate_args, **{name: self._choose(probs, logits)})

    @property
    def mean(self) -> fl.Tensor:
        return self.probs

    @property
    def mode(self) -> fl.Tensor:
        return (self.probs >= 0.5).to(self.probs).masked_fill(self.probs == 0.5, math.nan)

    @property
    def variance(self) -> fl.Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        with fl.no_grad():
            return fl.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> fl.Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> fl.Tensor:
        return self._unrolled(fl.arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    @property
    def _natural_params(self) -> tuple[fl.Tensor]:
        return (fl.logit(self.probs),)

    def _log_normalizer(self, x: fl.Tensor) -> fl.Tensor:
        return fl.log1p(x.exp())


class Geometric(_OfProbs):
    """Failures before the first success.

    >>> distributions.Geometric(0.25).mean
    tensor(3.)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name = "logits" if probs is None else "probs"
        self._adopt(validate_args, **{name: self._choose(probs, logits)})
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            raise ValueError(f"[Geometric] expected probs > 0, got {self.probs}")

    @property
    def mean(self) -> fl.Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> fl.Tensor:
        return fl.zeros_like(self.probs)

    @property
    def variance(self) -> fl.Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        with fl.no_grad():
            u = open_uniform(self._extended_shape(sample_shape), self.probs)
            return (u.log() / fl.log1p(-self.probs)).floor()

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        value, probs = broadcast_all(value, self.probs)
        failures = probs.masked_fill((probs == 1) & (value == 0), 0)  # a certain success: 0 * log(0) is 0
        return value * fl.log1p(-failures) + probs.log()

    def entropy(self) -> fl.Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs


class _Counting(_OfProbs):
    """Trials with a probability; `total_count` and the probability are broadcast together."""

    def _count(self, total_count: Any, probs: Any, logits: Any, validate_args: bool | None) -> None:
        name, parameter = ("logits" if probs is None else "probs"), self._choose(probs, logits)
        total_count, parameter = broadcast_all(total_count, parameter)
        self._adopt(validate_args, **{"total_count": total_count.type_as(parameter), name: parameter})


class Binomial(_Counting):
    """Successes in `total_count` trials.

    >>> distributions.Binomial(4, 0.5).mean
    tensor(2.)
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._count(total_count, probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> fl.Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> fl.Tensor:
        return fl.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> fl.Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        with fl.no_grad():
            return fl.binomial(self.total_count.expand(shape).contiguous(), self.probs.expand(shape).contiguous())

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        n = self.total_count
        log_choose = fl.lgamma(n + 1) - fl.lgamma(value + 1) - fl.lgamma(n - value + 1)
        return log_choose + value * self.logits - n * F.softplus(self.logits)

    def entropy(self) -> fl.Tensor:
        log_prob = self.log_prob(self._values("entropy", False))
        return -(log_prob.exp() * log_prob).sum(0)

    def _values(self, method: str, expand: bool) -> fl.Tensor:
        most = int(self.total_count.max())
        if not (self.total_count == most).all():
            raise NotImplementedError(f"[Binomial] {method} needs one total_count for the whole batch")
        return self._unrolled(fl.arange(1 + most, dtype=self._param.dtype, device=self._param.device), expand)

    def enumerate_support(self, expand: bool = True) -> fl.Tensor:
        return self._values("enumerate_support", expand)


class NegativeBinomial(_Counting):
    """Successes of probability `probs` before `total_count` failures.

    >>> distributions.NegativeBinomial(3, 0.5).mean
    tensor(3.)
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._count(total_count, probs, logits, validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> fl.Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> fl.Tensor:
        return self.mean / fl.sigmoid(-self.logits)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        """A Poisson variable whose rate is a gamma variable."""
        shape = self._extended_shape(sample_shape)
        with fl.no_grad():
            return fl.poisson(standard_gamma(self.total_count.expand(shape)) * self.logits.exp())

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        n = self.total_count
        density = n * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        log_choose = fl.lgamma(n + value) - fl.lgamma(1 + value) - fl.lgamma(n)
        return density + log_choose.masked_fill(n + value == 0, 0)


class Poisson(ExponentialFamily):
    """Events in an interval, at a constant rate.

    >>> distributions.Poisson(4.0).variance
    tensor(4.)
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._adopt(validate_args, rate=rate)

    @property
    def mean(self) -> fl.Tensor:
        return self.rate

    @property
    def mode(self) -> fl.Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> fl.Tensor:
        return self.rate

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        with fl.no_grad():
            return fl.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        rate, value = broadcast_all(self.rate, value)
        return fl.xlogy(value, rate) - rate - fl.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[fl.Tensor]:
        return (self.rate.log(),)

    def _log_normalizer(self, x: fl.Tensor) -> fl.Tensor:
        return x.exp()


class Categorical(_OfProbs):
    """One of as many classes as the last dimension of `probs` or `logits` has; both are normalised.

    >>> distributions.Categorical(flambeau.tensor([0.25, 0.75])).entropy()
    tensor(0.5623)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _binary = False

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        parameter = self._choose(probs, logits)
        if parameter.dim() < 1:
            raise ValueError("[Categorical] expected a parameter of at least one dimension, got a number")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = parameter.size(-1)
        super().__init__(parameter.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> fl.Tensor:
        return fl.full(self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> fl.Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> fl.Tensor:
        return self.mean

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        sample_shape = fl.Size(sample_shape)
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = fl.multinomial(rows, sample_shape.numel(), True)
        return drawn.T.reshape(self._extended_shape(sample_shape))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        value = value.long().unsqueeze(-1)
        shape = fl.broadcast_shapes(value.shape[:-1], self.logits.shape[:-1])
        value, logits = value.expand((*shape, 1)), self.logits.expand((*shape, self._num_events))
        return logits.gather(-1, value).squeeze(-1)

    def entropy(self) -> fl.Tensor:
        logits = self.logits.clamp(min=fl.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> fl.Tensor:
        return self._unrolled(fl.arange(self._num_events, device=self._param.device), expand)


class _OfCategorical(Distribution):
    """Made of draws from a categorical distribution, whose parameters it shows as its own."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _nested = ("_categorical",)

    @property
    def _param(self) -> fl.Tensor:
        return self._categorical._param

    def _new(self, *args: Any, **kwargs: Any) -> fl.Tensor:
        return self._categorical._new(*args, **kwargs)

    @property
    def probs(self) -> fl.Tensor:
        return self._categorical.probs

    @property
    def logits(self) -> fl.Tensor:
        return self._categorical.logits

    @property
    def param_shape(self) -> fl.Size:
        return self._categorical.param_shape


class OneHotCategorical(_OfCategorical):
    """A class as a vector with a single one.

    >>> distributions.OneHotCategorical(flambeau.tensor([0.25, 0.75])).mode
    tensor([0., 1.])
    """

    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> fl.Tensor:
        return self.probs

    @property
    def mode(self) -> fl.Tensor:
        return F.one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs)

    @property
    def variance(self) -> fl.Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return F.one_hot(self._categorical.sample(sample_shape), self._event_shape[0]).to(self.probs)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> fl.Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> fl.Tensor:
        n = self._event_shape[0]
        values = fl.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n, *[1] * len(self._batch_shape), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """Samples with the gradients of the probabilities.

    >>> distributions.OneHotCategoricalStraightThrough(flambeau.ones(3)).rsample().sum()
    tensor(1.)
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_OfCategorical):
    """How often each class came in `total_count` draws.

    >>> distributions.Multinomial(4, flambeau.tensor([0.25, 0.75])).mean
    tensor([1., 3.])
    """

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError(f"[Multinomial] expected one integer total_count, got {total_count!r}")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> fl.Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> fl.Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        draws = self._categorical.sample((self.total_count, *sample_shape)).movedim(0, -1)
        counts = fl.zeros(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
        return counts.scatter_add(-1, draws, fl.ones_like(draws, dtype=counts.dtype))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        logits, value = broadcast_all(self.logits, value)
        logits = logits.masked_fill((value == 0) & (logits == -math.inf), 0)
        return fl.lgamma(value.sum(-1) + 1) - fl.lgamma(value + 1).sum(-1) + (value * logits).sum(-1)

    def entropy(self) -> fl.Tensor:
        n = self.total_count
        counts = fl.arange(1, n + 1, dtype=self.probs.dtype, device=self.probs.device)
        counts = counts.view((-1, *[1] * self.probs.dim()))
        chances = Binomial(n, self.probs, validate_args=False).log_prob(counts).exp()
        repeats = (chances * fl.lgamma(counts + 1)).sum((0, -1))
        return n * self._categorical.entropy() - math.lgamma(n + 1) + repeats
