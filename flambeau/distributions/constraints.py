"""Regions that parameters and values lie in. A constraint says, by `check`, which values of a batch are inside.

`event_dim` is how many rightmost dimensions make one value; `check` returns a tensor without them.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl

__all__ = [
    "Constraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "independent", "integer_interval", "interval", "half_open_interval", "is_dependent", "less_than",
    "lower_cholesky", "lower_triangular", "MixtureSameFamilyConstraint", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_semidefinite", "positive_definite", "positive_integer",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A region of values."""

    is_discrete = False
    event_dim = 0

    def check(self, value: fl.Tensor) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no check")

    def __repr__(self) -> str:
        return f"{type(self).__name__.lstrip('_')}()"


class _Dependent(Constraint):
    """Depends on other parameters, so that it cannot be checked alone."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        if self._is_discrete is NotImplemented:
            raise NotImplementedError("[dependent] is_discrete is not known")
        return self._is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        if self._event_dim is NotImplemented:
            raise NotImplementedError("[dependent] event_dim is not known")
        return self._event_dim

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: fl.Tensor) -> fl.Tensor:
        raise ValueError("[dependent] a constraint that depends on other parameters cannot be checked alone")


def is_dependent(constraint: Any) -> bool:
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that, asked of the class rather than of an instance, is itself a dependent constraint."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: Any) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """The base constraint holds along some more dimensions, which become part of the event."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"[independent] expected a constraint, got {type(base_constraint).__name__}")
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise AssertionError(f"[independent] expected a number of dimensions, got {reinterpreted_batch_ndims!r}")
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: fl.Tensor) -> fl.Tensor:
        result = self.base_constraint.check(value)
        if result.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(
                f"[independent] expected a value of at least {self.event_dim} dimensions, got {value.dim()}"
            )
        keep = result.dim() - self.reinterpreted_batch_ndims
        return result.reshape((*result.shape[:keep], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The value lies in the support of every component of a mixture."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"[mixture] expected a constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: fl.Tensor) -> fl.Tensor:
        event = self.event_dim
        if value.dim() < event:
            raise ValueError(f"[mixture] expected a value of at least {event} dimensions, got {value.dim()}")
        inside = self.base_constraint.check(value.unsqueeze(value.dim() - event))
        keep = value.dim() - event
        return inside.reshape((*value.shape[:keep], -1)).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


# ---------------------------------------------------------------- numbers


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return value == value  # false for NaN


class _Bounded(Constraint):
    """A range with the bounds named in `_bounds`."""

    _bounds: tuple[str, ...] = ("lower_bound", "upper_bound")

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={getattr(self, name)}" for name in self._bounds)
        return f"{type(self).__name__.lstrip('_')}({bounds})"


class _Above(_Bounded):
    _bounds = ("lower_bound",)

    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound
        super().__init__()


class _Below(_Bounded):
    _bounds = ("upper_bound",)

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound
        super().__init__()


class _Between(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        super().__init__()


class _GreaterThan(_Above):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return self.lower_bound < value


class _GreaterThanEq(_Above):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return self.lower_bound <= value


class _LessThan(_Below):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return value < self.upper_bound


class _Interval(_Between):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (self.lower_bound <= value) & (value <= self.upper_bound)


class _HalfOpenInterval(_Between):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (self.lower_bound <= value) & (value < self.upper_bound)


class _IntegerInterval(_Between):
    is_discrete = True

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Above):
    is_discrete = True

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)


class _IntegerLessThan(_Below):
    is_discrete = True

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (value % 1 == 0) & (value <= self.upper_bound)


# ---------------------------------------------------------------- vectors and matrices


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Below):
    is_discrete = True
    event_dim = 1
    __repr__ = Constraint.__repr__

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


def _all_of_matrix(flags: fl.Tensor) -> fl.Tensor:
    return flags.flatten(-2).all(-1)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: fl.Tensor) -> fl.Tensor:
        return _all_of_matrix(value.tril() == value)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    event_dim = 2

    def check(self, value: fl.Tensor) -> fl.Tensor:
        tolerance = fl.finfo(value.dtype).eps * value.size(-1) * 10  # rows are sums of that many squares
        unit = (fl.linalg.norm(value.detach(), dim=-1) - 1).abs() < tolerance
        return unit.all(-1) & _LowerCholesky().check(value)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: fl.Tensor) -> fl.Tensor:
        make = fl.ones if value.shape[-2] == value.shape[-1] else fl.zeros
        return make(value.shape[:-2], dtype=fl.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        square = super().check(value)
        return square if not square.all() else _all_of_matrix(fl.isclose(value, value.mT, atol=1e-6))


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else (fl.linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: fl.Tensor) -> fl.Tensor:
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else fl.linalg.cholesky_ex(value).info == 0


# ---------------------------------------------------------------- several constraints along a dimension


class _Along(Constraint):
    """Constraints for the parts of a value along one dimension."""

    def __init__(self, cseq: Any, dim: int = 0) -> None:
        self.cseq = list(cseq)
        if not all(isinstance(part, Constraint) for part in self.cseq):
            raise AssertionError("[constraints] expected a sequence of constraints")
        self.dim = dim
        super().__init__()

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return any(part.is_discrete for part in self.cseq)


class _Cat(_Along):
    def __init__(self, cseq: Any, dim: int = 0, lengths: Any = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"[cat] expected {len(self.cseq)} lengths, got {len(self.lengths)}")

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return max(part.event_dim for part in self.cseq)

    def check(self, value: fl.Tensor) -> fl.Tensor:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"[cat] dimension {self.dim} is out of range for a value of {value.dim()} dimensions")
        pieces = value.split(self.lengths, self.dim)
        return fl.cat([part.check(piece) for part, piece in zip(self.cseq, pieces)], self.dim)


class _Stack(_Along):
    @property
    def event_dim(self) -> int:  # type: ignore[override]
        dims = max(part.event_dim for part in self.cseq)
        return dims + 1 if self.dim + dims < 0 else dims

    def check(self, value: fl.Tensor) -> fl.Tensor:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"[stack] dimension {self.dim} is out of range for {value.dim()} dimensions")
        pieces = value.unbind(self.dim)
        return fl.stack([part.check(piece) for part, piece in zip(self.cseq, pieces)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
integer_greater_than = _IntegerGreaterThan
integer_less_than = _IntegerLessThan
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
