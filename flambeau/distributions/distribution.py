"""The base of all distributions: shapes, validation, expansion, and the exponential family.

A distribution is a batch of random variables; each variable is an event. A sample has the shape
`sample_shape + batch_shape + event_shape`, a log-probability `sample_shape + batch_shape`.

Subclasses name their parameters in `arg_constraints`. `expand` expands these, leaving the dimensions of events as they
are, and what `_event_dims` (further tensors) and `_nested` (distributions that this one is made of) name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import flambeau as fl
from flambeau.distributions import constraints
from flambeau.distributions.utils import broadcast_all, lazy_property

__all__ = ["Distribution", "ExponentialFamily"]


def missing(method: str) -> Any:
    """A method that subclasses may define."""

    def absent(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] has no {method}")

    absent.__name__ = method
    return absent


def checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a value that is first held against the support, where the distribution validates."""

    @wraps(method)
    def call(self: Any, value: fl.Tensor) -> fl.Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return method(self, value)

    return call


class Distribution:
    """A batch of random variables; subclasses say how to draw them and how likely values are.

    - batch_shape: of variables that differ in their parameters; event_shape: of one variable.

    >>> isinstance(flambeau.distributions.Normal(0.0, 1.0), flambeau.distributions.Distribution)
    True
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    _event_dims: dict[str, int] = {}
    _nested: tuple[str, ...] = ()

    def __init__(
        self,
        batch_shape: tuple[int, ...] = fl.Size(),
        event_shape: tuple[int, ...] = fl.Size(),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape = fl.Size(batch_shape)
        self._event_shape = fl.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()
        super().__init__()

    def _adopt(self, validate_args: bool | None, **parameters: Any) -> None:
        """Keeps parameters of numbers, broadcast together; the batch shape is theirs."""
        values = broadcast_all(*parameters.values())
        self.__dict__.update(zip(parameters, values))
        Distribution.__init__(self, values[0].size(), validate_args=validate_args)

    def _validate_parameters(self) -> None:
        try:
            arg_constraints = self.arg_constraints
        except NotImplementedError:
            arg_constraints = {}
            warnings.warn(
                f"[{type(self).__name__}] does not define arg_constraints; give it {{}} or validate_args=False",
                stacklevel=3,
            )
        if fl.compiler.is_compiling():
            return  # a graph has no way to raise what depends on values, as in PyTorch
        for name, constraint in arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                continue  # computed from another parameter, which is checked
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"[{type(self).__name__}] expected parameter {name} of shape {tuple(value.shape)} to satisfy "
                    f"{constraint!r}, got {value}"
                )

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check parameters and values unless told otherwise."""
        if value not in (True, False):
            raise ValueError(f"[set_default_validate_args] expected True or False, got {value!r}")
        Distribution._validate_args = value

    # ------------------------------------------------------------ shapes

    @property
    def batch_shape(self) -> fl.Size:
        return self._batch_shape

    @property
    def event_shape(self) -> fl.Size:
        return self._event_shape

    def _extended_shape(self, sample_shape: Any = fl.Size()) -> fl.Size:
        return fl.Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with parameters expanded to a batch shape; no memory is copied."""
        new = type(self).__new__(type(self)) if _instance is None else _instance
        batch_shape = fl.Size(batch_shape)
        known = set(new.__dict__)
        event_dims = self._parameter_event_dims()
        for name, value in self.__dict__.items():
            if name in known:
                continue
            if name in self._nested:
                value = self._expand_nested(name, value, batch_shape)
            elif name in event_dims and isinstance(value, fl.Tensor):
                value = value.expand((*batch_shape, *value.shape[value.dim() - event_dims[name] :]))
            new.__dict__[name] = value
        new._batch_shape = batch_shape
        new._event_shape = self._event_shape
        return new

    def _parameter_event_dims(self) -> dict[str, int]:
        """How many dimensions of each parameter belong to an event rather than to the batch."""
        known = {
            name: constraint.event_dim
            for name, constraint in self.arg_constraints.items()
            if not constraints.is_dependent(constraint)
        }
        return known | self._event_dims

    def _expand_nested(self, name: str, value: Any, batch_shape: fl.Size) -> Any:
        return value.expand(batch_shape)

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An instance for a subclass's own `expand` to fill."""
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"[{type(self).__name__}] has an __init__ of its own and so needs an expand() of its own"
            )
        return self.__new__(type(self)) if _instance is None else _instance

    # ------------------------------------------------------------ what a distribution knows

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        raise NotImplementedError(f"[{type(self).__name__}] has no arg_constraints")

    @property
    def support(self) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] has no support")

    @property
    def mean(self) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no mean")

    @property
    def mode(self) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no mode")

    @property
    def variance(self) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no variance")

    @property
    def stddev(self) -> fl.Tensor:
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        """Draws without gradients."""
        with fl.no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> fl.Tensor:
        warnings.warn("[sample_n] is deprecated; use sample((n,))", FutureWarning, stacklevel=2)
        return self.sample(fl.Size((n,)))

    rsample = missing("rsample")
    log_prob = missing("log_prob")
    cdf = missing("cdf")
    icdf = missing("icdf")
    enumerate_support = missing("enumerate_support")
    entropy = missing("entropy")

    def perplexity(self) -> fl.Tensor:
        return self.entropy().exp()

    def _validate_sample(self, value: fl.Tensor) -> None:
        name = type(self).__name__
        if not isinstance(value, fl.Tensor):
            raise ValueError(f"[{name}] expected the value to be a Tensor, got {type(value).__name__}")
        event = len(self._event_shape)
        if tuple(value.shape[value.dim() - event :]) != tuple(self._event_shape):
            raise ValueError(
                f"[{name}] expected a value whose shape ends in {tuple(self._event_shape)}, got {tuple(value.shape)}"
            )
        expected = self._batch_shape + self._event_shape
        for actual, wanted in zip(reversed(value.shape), reversed(expected)):
            if actual != 1 and wanted != 1 and actual != wanted:
                raise ValueError(
                    f"[{name}] expected a value that broadcasts with {tuple(expected)}, got shape {tuple(value.shape)}"
                )
        if fl.compiler.is_compiling():
            return
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(f"[{name}] does not define its support; values are not checked", stacklevel=3)
            return
        if not support.check(value).all():
            raise ValueError(f"[{name}] expected values within the support {support!r}, got {value}")

    def __repr__(self) -> str:
        parts = []
        for name in self.arg_constraints:
            if name in self.__dict__:
                value = self.__dict__[name]
                parts.append(f"{name}: {value if value.numel() == 1 else value.size()}")
        return f"{type(self).__name__}({', '.join(parts)})"


class ExponentialFamily(Distribution):
    """Densities exp(<natural parameters, statistics> - log_normalizer + carrier): entropy follows from the normalizer.

    >>> isinstance(flambeau.distributions.Poisson(1.0), flambeau.distributions.ExponentialFamily)
    True
    """

    @property
    def _natural_params(self) -> tuple[fl.Tensor, ...]:
        raise NotImplementedError(f"[{type(self).__name__}] has no natural parameters")

    _log_normalizer = missing("_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] has no mean of the carrier measure")

    def _normalizer_and_gradients(self) -> tuple[list[fl.Tensor], fl.Tensor, tuple[fl.Tensor, ...]]:
        """Natural parameters, the log-normalizer there and its derivatives, the expected statistics."""
        natural = [value.detach().requires_grad_() for value in self._natural_params]
        with fl.enable_grad():
            normalizer = self._log_normalizer(*natural)
            gradients = fl.autograd.grad(normalizer.sum(), natural, create_graph=True)
        return natural, normalizer, gradients

    def entropy(self) -> fl.Tensor:
        natural, result, gradients = self._normalizer_and_gradients()
        result = result - self._mean_carrier_measure
        for value, gradient in zip(natural, gradients):
            result = result - (value * gradient).reshape((*self._batch_shape, -1)).sum(-1)
        return result
