"""Distributions made of others: Independent, TransformedDistribution, MixtureSameFamily."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.distributions import constraints
from flambeau.distributions._discrete import Categorical
from flambeau.distributions.distribution import Distribution, checked
from flambeau.distributions.transforms import ComposeTransform, Transform
from flambeau.distributions.utils import _sum_rightmost

__all__ = ["Independent", "MixtureSameFamily", "TransformedDistribution"]


class Independent(Distribution):
    """Makes the last batch dimensions of a distribution part of the event: their log-probabilities are summed.

    >>> distributions.Independent(distributions.Normal(flambeau.zeros(2), 1.0), 1).log_prob(flambeau.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    _nested = ("base_dist",)

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        batch = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > batch:
            raise ValueError(
                f"[Independent] expected reinterpreted_batch_ndims <= {batch}, the base's batch dimensions, "
                f"got {reinterpreted_batch_ndims}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        batch_dims = batch - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:batch_dims], shape[batch_dims:], validate_args=validate_args)

    def _expand_nested(self, name: str, value: Any, batch_shape: fl.Size) -> Any:
        return value.expand((*batch_shape, *self._event_shape[: self.reinterpreted_batch_ndims]))

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        base, extra = self.base_dist.support, self.reinterpreted_batch_ndims
        return constraints.independent(base, extra) if extra else base

    @property
    def mean(self) -> fl.Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> fl.Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> fl.Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> fl.Tensor:
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> fl.Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("[Independent] cannot enumerate the product of several supports")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of transformed draws of a base distribution.

    >>> distributions.TransformedDistribution(distributions.Normal(0.0, 1.0), [distributions.ExpTransform()]).log_prob(flambeau.tensor(1.0))
    tensor(-0.9189)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    _nested = ("base_dist",)

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list) or not all(isinstance(part, Transform) for part in self.transforms):
            raise ValueError(f"[TransformedDistribution] expected transforms, got {transforms!r}")
        transform = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        event_in = transform.domain.event_dim
        if len(shape) < event_in:
            raise ValueError(
                f"[TransformedDistribution] expected a base of at least {event_in} dimensions, got shape {tuple(shape)}"
            )
        # Parameters of the transforms may broadcast the base, and their events may be larger than its own.
        forward = transform.forward_shape(shape)
        wanted = transform.inverse_shape(forward)
        base_event = len(base_distribution.event_shape)
        if tuple(wanted) != tuple(shape):
            base_distribution = base_distribution.expand(wanted[: len(wanted) - base_event])
        if event_in > base_event:
            base_distribution = Independent(base_distribution, event_in - base_event)
        self.base_dist = base_distribution
        event_out = transform.codomain.event_dim + max(base_event - event_in, 0)
        batch_dims = len(forward) - event_out
        super().__init__(forward[:batch_dims], forward[batch_dims:], validate_args=validate_args)

    def _expand_nested(self, name: str, value: Any, batch_shape: fl.Size) -> Any:
        shape = fl.Size((*batch_shape, *self._event_shape))
        for part in reversed(self.transforms):
            shape = part.inverse_shape(shape)
        return value.expand(shape[: len(shape) - len(value.event_shape)])

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        extra = len(self._event_shape) - support.event_dim
        return constraints.independent(support, extra) if extra > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def _forward(self, x: fl.Tensor) -> fl.Tensor:
        for part in self.transforms:
            x = part(x)
        return x

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        with fl.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        event_dim, y = len(self._event_shape), value
        result: Any = 0.0
        for part in reversed(self.transforms):
            x = part.inv(y)
            event_dim += part.domain.event_dim - part.codomain.event_dim
            result = result - _sum_rightmost(part.log_abs_det_jacobian(x, y), event_dim - part.domain.event_dim)
            y = x
        return result + _sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: fl.Tensor) -> fl.Tensor:
        """Quantiles counted from the other end where the transforms decrease."""
        sign: Any = 1
        for part in self.transforms:
            sign = sign * part.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        for part in reversed(self.transforms):
            value = part.inv(value)
        if self.base_dist._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: fl.Tensor) -> fl.Tensor:
        return self._forward(self.base_dist.icdf(self._monotonize_cdf(value)))


class MixtureSameFamily(Distribution):
    """One of several distributions, the last batch dimension of the components, chosen by a categorical variable.

    >>> distributions.MixtureSameFamily(distributions.Categorical(flambeau.ones(2)), distributions.Normal(flambeau.tensor([-1.0, 3.0]), 1.0)).mean
    tensor(1.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(
                f"[MixtureSameFamily] expected a Categorical to choose, got {type(mixture_distribution).__name__}"
            )
        if not isinstance(component_distribution, Distribution):
            raise ValueError(
                f"[MixtureSameFamily] expected a Distribution, got {type(component_distribution).__name__}"
            )
        batch = component_distribution.batch_shape
        chosen = mixture_distribution.batch_shape
        if any(a != 1 and b != 1 and a != b for a, b in zip(reversed(chosen), reversed(batch[:-1]))):
            raise ValueError(
                f"[MixtureSameFamily] expected batch shapes that fit, got {tuple(chosen)} and {tuple(batch[:-1])}"
            )
        count = mixture_distribution.logits.shape[-1]
        if not batch or batch[-1] != count:
            raise ValueError(f"[MixtureSameFamily] expected {count} components, got batch shape {tuple(batch)}")
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        self._num_component = count
        event = component_distribution.event_shape
        self._event_ndims = len(event)
        super().__init__(batch[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        return self._component_distribution

    def _weights(self) -> fl.Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.shape, *[1] * self._event_ndims))

    def _pad(self, value: fl.Tensor) -> fl.Tensor:
        return value.unsqueeze(-1 - self._event_ndims)

    @property
    def mean(self) -> fl.Tensor:
        return (self._weights() * self.component_distribution.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self) -> fl.Tensor:
        """The mean of the variances and the variance of the means."""
        spread = (self.component_distribution.mean - self._pad(self.mean)).pow(2)
        return (self._weights() * (self.component_distribution.variance + spread)).sum(-1 - self._event_ndims)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        each = self.component_distribution.log_prob(self._pad(value))
        return fl.logsumexp(each + fl.log_softmax(self.mixture_distribution.logits, -1), -1)

    @checked
    def cdf(self, value: fl.Tensor) -> fl.Tensor:
        return (self.component_distribution.cdf(self._pad(value)) * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        with fl.no_grad():
            every = self.component_distribution.sample(sample_shape)
            dim = every.dim() - self._event_ndims - 1
            chosen = self.mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            chosen = chosen.reshape((*chosen.shape, *[1] * (self._event_ndims + 1)))
            shape = (*every.shape[:dim], 1, *every.shape[dim + 1 :])
            return every.gather(dim, chosen.expand(shape)).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
