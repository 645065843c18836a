"""The base of transforms, their inverses and their composition.

A subclass defines `domain`, `codomain`, `_call`, `_inverse` and, when it is bijective, `log_abs_det_jacobian(x, y)`.
With `cache_size=1` the latest pair (x, y) is kept, so that inverting a value just computed is free and exact.
"""

from __future__ import annotations

import copy
import operator
import weakref
from functools import reduce
from typing import Any

import flambeau as fl
from flambeau.distributions import constraints
from flambeau.distributions.utils import _sum_rightmost, lazy_property


class Transform:
    """A map with the logarithm of its derivative; `inv` is its inverse as a transform.

    >>> square = flambeau.distributions.transforms.PowerTransform(flambeau.tensor(2.0))
    >>> square(flambeau.tensor(3.0)), square.inv(flambeau.tensor(9.0))
    (tensor(9.), tensor(3.))
    """

    bijective = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError(f"[{type(self).__name__}] expected cache_size 0 or 1, got {cache_size}")
        self._cache_size = cache_size
        self._cached: tuple[Any, Any] = (None, None)
        self._inv: Any = None
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_inv": None, "_cached": (None, None)}  # weak references do not travel

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim != self.codomain.event_dim:
            raise ValueError(f"[{type(self).__name__}] has no single event_dim: the domain and codomain differ")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> Any:
        """The sign of the derivative, for monotonic transforms of numbers."""
        raise NotImplementedError(f"[{type(self).__name__}] is not known to be monotonic")

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        if cache_size not in (0, 1):
            raise ValueError(f"[{type(self).__name__}] expected cache_size 0 or 1, got {cache_size}")
        new = copy.copy(self)
        new._cache_size = cache_size
        return new

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: fl.Tensor) -> fl.Tensor:
        if self._cache_size == 0:
            return self._call(x)
        if x is not self._cached[0]:
            self._cached = (x, self._call(x))
        return self._cached[1]

    def _inv_call(self, y: fl.Tensor) -> fl.Tensor:
        if self._cache_size == 0:
            return self._inverse(y)
        if y is not self._cached[1]:
            self._cached = (self._inverse(y), y)
        return self._cached[0]

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no forward map")

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no inverse")

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        raise NotImplementedError(f"[{type(self).__name__}] has no log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Any:
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """A transform the other way round."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": (None, None)}

    @property
    def domain(self) -> Any:
        return self._inv.codomain

    @property
    def codomain(self) -> Any:
        return self._inv.domain

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        return self._inv.sign

    @property
    def inv(self) -> Transform:
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __call__(self, x: fl.Tensor) -> fl.Tensor:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._inv!r})"


# ---------------------------------------------------------------- transforms of transforms


class ComposeTransform(Transform):
    """Several transforms, the first applied first.

    >>> distributions.ComposeTransform([distributions.AffineTransform(0.0, 2.0), distributions.ExpTransform()])(flambeau.tensor(0.0))
    tensor(1.)
    """

    def __init__(self, parts: list[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def _ends(self) -> tuple[Any, Any]:
        """The domain and codomain. Where a part needs larger events than the others, all take them."""
        first, last = self.parts[0].domain, self.parts[-1].codomain
        needed = last.event_dim
        for part in reversed(self.parts):
            needed = max(needed + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        produced = needed
        for part in self.parts:
            produced += part.codomain.event_dim - part.domain.event_dim
        extra_in, extra_out = needed - first.event_dim, produced - last.event_dim
        return (
            constraints.independent(first, extra_in) if extra_in else first,
            constraints.independent(last, extra_out) if extra_out else last,
        )

    @constraints.dependent_property
    def domain(self) -> Any:
        return self._ends()[0] if self.parts else constraints.real

    @constraints.dependent_property
    def codomain(self) -> Any:
        return self._ends()[1] if self.parts else constraints.real

    @lazy_property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @lazy_property
    def sign(self) -> Any:
        return reduce(operator.mul, (part.sign for part in self.parts), 1)

    @property
    def inv(self) -> Transform:
        inverse = None if self._inv is None else self._inv()
        if inverse is None:
            inverse = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv = weakref.ref(inverse)
            inverse._inv = weakref.ref(self)
        return inverse

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: fl.Tensor) -> fl.Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        if not self.parts:
            return fl.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        terms, event_dim = [], self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:]):
            terms.append(_sum_rightmost(part.log_abs_det_jacobian(before, after), event_dim - part.domain.event_dim))
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return reduce(operator.add, terms)

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])
