"""Finds a transform from unconstrained numbers to a constraint.

`biject_to` gives bijections, for change of variables; `transform_to` gives what is cheap and well behaved for
optimisation, which may be many-to-one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A table from classes of constraints to functions that make the transform for one."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], transforms.Transform]] = {}
        super().__init__()

    def register(self, constraint: Any, factory: Any = None) -> Callable[[Any], Any]:
        """Registers a factory for a constraint or its class; a decorator when no factory is given."""
        if factory is None:
            return lambda function: self.register(constraint, function)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"[register] expected a constraint or a class of constraints, got {constraint!r}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> transforms.Transform:
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(f"[constraint_registry] no transform to {constraint!r} is known") from None
        return factory(constraint)


biject_to = ConstraintRegistry()
biject_to.__doc__ = """A bijection from the real numbers to the values of a constraint.

>>> flambeau.distributions.biject_to(flambeau.distributions.constraints.unit_interval)
SigmoidTransform()
"""
transform_to = ConstraintRegistry()
transform_to.__doc__ = """A map, not always a bijection, from the real numbers to the values of a constraint.

>>> flambeau.distributions.transform_to(flambeau.distributions.constraints.simplex)
SoftmaxTransform()
"""


def for_both(*kinds: Any) -> Callable[[Any], Any]:
    def decorate(factory: Any) -> Any:
        for kind in kinds:
            biject_to.register(kind, factory)
            transform_to.register(kind, factory)
        return factory

    return decorate


@for_both(constraints.real)
def _real(constraint: Any) -> transforms.Transform:
    return transforms.identity_transform


@biject_to.register(constraints.independent)
def _biject_independent(constraint: Any) -> transforms.Transform:
    return transforms.IndependentTransform(biject_to(constraint.base_constraint), constraint.reinterpreted_batch_ndims)


@transform_to.register(constraints.independent)
def _transform_independent(constraint: Any) -> transforms.Transform:
    return transforms.IndependentTransform(
        transform_to(constraint.base_constraint), constraint.reinterpreted_batch_ndims
    )


@for_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint: Any) -> transforms.Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


@for_both(constraints.less_than)
def _below(constraint: Any) -> transforms.Transform:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@for_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    sigmoid = transforms.SigmoidTransform()
    if all(isinstance(bound, (int, float)) for bound in (low, high)) and (low, high) == (0, 1):
        return sigmoid
    return transforms.ComposeTransform([sigmoid, transforms.AffineTransform(low, high - low)])


@biject_to.register(constraints.simplex)
def _biject_simplex(constraint: Any) -> transforms.Transform:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _transform_simplex(constraint: Any) -> transforms.Transform:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _lower_cholesky(constraint: Any) -> transforms.Transform:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _positive_definite(constraint: Any) -> transforms.Transform:
    return transforms.PositiveDefiniteTransform()


@for_both(constraints.corr_cholesky)
def _corr_cholesky(constraint: Any) -> transforms.Transform:
    return transforms.CorrCholeskyTransform()


def _of_parts(registry: ConstraintRegistry) -> None:
    registry.register(
        constraints.cat,
        lambda parts: transforms.CatTransform([registry(part) for part in parts.cseq], parts.dim, parts.lengths),
    )
    registry.register(
        constraints.stack, lambda parts: transforms.StackTransform([registry(part) for part in parts.cseq], parts.dim)
    )


_of_parts(biject_to)
_of_parts(transform_to)
