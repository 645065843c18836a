"""Maps between regions with the logarithm of how much they stretch volume: the parts of transformed distributions."""

from __future__ import annotations

import copy
import math
import operator
from functools import reduce
from typing import Any

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.distributions import constraints
from flambeau.distributions._transform import ComposeTransform, Transform, _InverseTransform, identity_transform  # noqa: F401
from flambeau.distributions.utils import (
    _sum_rightmost,
    broadcast_all,
    lazy_property,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
    "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftplusTransform",
    "TanhTransform", "SoftmaxTransform", "StackTransform", "StickBreakingTransform", "Transform", "identity_transform",
]  # fmt: skip


# ---------------------------------------------------------------- transforms of transforms


class IndependentTransform(Transform):
    """The base transform with some batch dimensions made part of the event: their jacobians are summed.

    >>> distributions.IndependentTransform(distributions.ExpTransform(), 1).log_abs_det_jacobian(flambeau.ones(2), flambeau.ones(2).exp())
    tensor(2.)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        if x.dim() < self.domain.event_dim:
            raise ValueError(f"[IndependentTransform] expected at least {self.domain.event_dim} dims, got {x.dim()}")
        return self.base_transform(x)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        if y.dim() < self.codomain.event_dim:
            raise ValueError(f"[IndependentTransform] expected at least {self.codomain.event_dim} dims, got {y.dim()}")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Gives events another shape of the same number of elements.

    >>> distributions.ReshapeTransform((4,), (2, 2))(flambeau.arange(4.0)).shape
    torch.Size([2, 2])
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape = fl.Size(in_shape)
        self.out_shape = fl.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(
                f"[ReshapeTransform] expected shapes of one size, got {tuple(in_shape)} and {tuple(out_shape)}"
            )
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return x.reshape((*x.shape[: x.dim() - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y.reshape((*y.shape[: y.dim() - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def _swap(self, shape: Any, old: fl.Size, new: fl.Size) -> Any:
        batch_dims = len(shape) - len(old)
        if batch_dims < 0 or tuple(shape[batch_dims:]) != tuple(old):
            raise ValueError(f"[ReshapeTransform] expected a shape that ends in {tuple(old)}, got {tuple(shape)}")
        return fl.Size((*shape[:batch_dims], *new))

    def forward_shape(self, shape: Any) -> Any:
        return self._swap(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._swap(shape, self.out_shape, self.in_shape)


class _PartsTransform(Transform):
    """Transforms of the parts of a value along one dimension."""

    tseq: list[Transform]
    dim: int

    def __init__(self, tseq: Any, dim: int = 0, cache_size: int = 0) -> None:
        tseq = list(tseq)
        if not all(isinstance(part, Transform) for part in tseq):
            raise AssertionError(f"[{type(self).__name__}] expected a sequence of transforms")
        super().__init__(cache_size=cache_size)
        self.tseq = [part.with_cache(cache_size) for part in tseq] if cache_size else tseq
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        new = copy.copy(self)
        new._cache_size = cache_size
        new.tseq = [part.with_cache(cache_size) for part in self.tseq]
        return new

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(part.bijective for part in self.tseq)

    def _check_dim(self, x: fl.Tensor) -> None:
        if not -x.dim() <= self.dim < x.dim():
            raise AssertionError(f"[{type(self).__name__}] dimension {self.dim} is out of range for {x.dim()} dims")


class CatTransform(_PartsTransform):
    """Parts of given lengths along a dimension, each with its transform.

    >>> distributions.CatTransform([distributions.ExpTransform(), distributions.ExpTransform()], lengths=[1, 1])(flambeau.zeros(2))
    tensor([1., 1.])
    """

    def __init__(self, tseq: Any, dim: int = 0, lengths: Any = None, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.tseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.tseq):
            raise AssertionError(f"[CatTransform] expected {len(self.tseq)} lengths, got {len(self.lengths)}")

    @lazy_property
    def event_dim(self) -> int:
        return max(part.event_dim for part in self.tseq)

    @lazy_property
    def length(self) -> int:
        return sum(self.lengths)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([part.domain for part in self.tseq], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([part.codomain for part in self.tseq], self.dim, self.lengths)

    def _split(self, x: fl.Tensor) -> Any:
        self._check_dim(x)
        if x.size(self.dim) != self.length:
            raise AssertionError(f"[CatTransform] expected size {self.length} along {self.dim}, got {x.size(self.dim)}")
        return x.split(self.lengths, self.dim)

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return fl.cat([part(piece) for part, piece in zip(self.tseq, self._split(x))], self.dim)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return fl.cat([part.inv(piece) for part, piece in zip(self.tseq, self._split(y))], self.dim)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        terms = []
        for part, before, after in zip(self.tseq, self._split(x), self._split(y)):
            term = part.log_abs_det_jacobian(before, after)
            terms.append(_sum_rightmost(term, self.event_dim - part.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return fl.cat(terms, dim) if dim < 0 else reduce(operator.add, terms)


class StackTransform(_PartsTransform):
    """Slices along a dimension, each with its transform.

    >>> distributions.StackTransform([distributions.ExpTransform(), distributions.AbsTransform()])(flambeau.tensor([0.0, -2.0]))
    tensor([1., 2.])
    """

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([part.domain for part in self.tseq], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([part.codomain for part in self.tseq], self.dim)

    def _slices(self, x: fl.Tensor) -> Any:
        self._check_dim(x)
        if x.size(self.dim) != len(self.tseq):
            raise AssertionError(
                f"[StackTransform] expected size {len(self.tseq)} along {self.dim}, got {x.size(self.dim)}"
            )
        return x.unbind(self.dim)

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return fl.stack([part(piece) for part, piece in zip(self.tseq, self._slices(x))], self.dim)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return fl.stack([part.inv(piece) for part, piece in zip(self.tseq, self._slices(y))], self.dim)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        pairs = zip(self.tseq, self._slices(x), self._slices(y))
        return fl.stack([part.log_abs_det_jacobian(before, after) for part, before, after in pairs], self.dim)


# ---------------------------------------------------------------- transforms of numbers


class _Monotonic(Transform):
    """An increasing bijection of numbers without parameters; all of one class are equal."""

    domain = constraints.real
    codomain: constraints.Constraint = constraints.real
    bijective = True
    sign = 1

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = object.__hash__


class ExpTransform(_Monotonic):
    """y = exp(x).

    >>> distributions.ExpTransform().inv(flambeau.tensor(1.0))
    tensor(0.)
    """

    codomain = constraints.positive

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return x.exp()

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return x


class PowerTransform(Transform):
    """y = x ** exponent for positive x.

    >>> distributions.PowerTransform(2.0)(flambeau.tensor(3.0))
    tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return fl.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(_Monotonic):
    """y = 1 / (1 + exp(-x)).

    >>> distributions.SigmoidTransform()(flambeau.tensor(0.0))
    tensor(0.5000)
    """

    codomain = constraints.unit_interval

    @staticmethod
    def _inside(y: fl.Tensor) -> fl.Tensor:
        info = fl.finfo(y.dtype)
        return y.clamp(min=info.tiny, max=1 - info.eps)

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        y = self._inside(y)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return -F.softplus(-x) - F.softplus(x)


def _clipped_sigmoid(x: fl.Tensor) -> fl.Tensor:
    """The sigmoid, inside of the open unit interval."""
    return SigmoidTransform._inside(fl.sigmoid(x))


class SoftplusTransform(_Monotonic):
    """y = log(1 + exp(x)).

    >>> distributions.SoftplusTransform()(flambeau.tensor(0.0))
    tensor(0.6931)
    """

    codomain = constraints.positive

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return F.softplus(x)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y + (-(-y).expm1()).log()

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return -F.softplus(-x)


class TanhTransform(_Monotonic):
    """Prefer it to composing affine maps and sigmoids: it is stable far from zero.

    >>> distributions.TanhTransform()(flambeau.tensor(0.0))
    tensor(0.)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return x.tanh()

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return 2 * (math.log(2) - x - F.softplus(-2 * x))


class AbsTransform(Transform):
    """y = |x|; the inverse takes the nonnegative one.

    >>> distributions.AbsTransform()(flambeau.tensor(-2.0))
    tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return x.abs()

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x.

    >>> distributions.AffineTransform(1.0, 2.0)(flambeau.tensor(3.0))
    tensor(7.)
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    def _region(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._region()

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._region()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        pairs = ((self.loc, other.loc), (self.scale, other.scale))
        return all(
            bool((a == b).all()) if isinstance(a, fl.Tensor) or isinstance(b, fl.Tensor) else a == b for a, b in pairs
        )

    __hash__ = object.__hash__

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, fl.Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        shape: tuple[int, ...] = x.shape
        scale = self.scale
        result = scale.abs().log() if isinstance(scale, fl.Tensor) else fl.full_like(x, math.log(abs(scale)))
        if self._event_dim:
            result = result.expand(fl.broadcast_shapes(result.shape, shape[len(shape) - self._event_dim :]))
            result = _sum_rightmost(result, self._event_dim)
            shape = shape[: len(shape) - self._event_dim]
        return result.expand(shape)

    def forward_shape(self, shape: Any) -> Any:
        return fl.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """Maps values to their quantiles in a distribution of numbers.

    >>> distributions.CumulativeDistributionTransform(distributions.Normal(0.0, 1.0))(flambeau.tensor(0.0))
    tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        return self.distribution.log_prob(x)


# ---------------------------------------------------------------- vectors and matrices


class SoftmaxTransform(Transform):
    """Unnormalised logarithms to the simplex; the inverse is one of many.

    >>> distributions.SoftmaxTransform()(flambeau.zeros(2))
    tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = object.__hash__

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return fl.softmax(x, dim=-1)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("[SoftmaxTransform] expected at least one dimension, got none")
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(Transform):
    """n numbers to n + 1 probabilities: each says what part to break off what is left of a stick of length one.

    The offsets make zeros break the stick into equal pieces.

    >>> distributions.StickBreakingTransform()(flambeau.zeros(1))
    tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StickBreakingTransform)

    __hash__ = object.__hash__

    @staticmethod
    def _offsets(like: fl.Tensor) -> fl.Tensor:
        n = like.shape[-1]
        return fl.arange(n, 0, -1, dtype=like.dtype, device=like.device).log()

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        broken = _clipped_sigmoid(x - self._offsets(x))
        left = (1 - broken).cumprod(-1)
        return F.pad(broken, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        head = y[..., :-1]
        left = (1 - head.cumsum(-1)).clamp(min=fl.finfo(y.dtype).tiny)
        return head.log() - left.log() + self._offsets(head)

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        x = x - self._offsets(x)
        return (F.logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("[StickBreakingTransform] expected at least one dimension, got none")
        return fl.Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("[StickBreakingTransform] expected at least one dimension, got none")
        return fl.Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(Transform):
    """Any square matrix to a lower triangular one with a positive diagonal.

    >>> distributions.LowerCholeskyTransform()(flambeau.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LowerCholeskyTransform)

    __hash__ = object.__hash__

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """Any square matrix to a positive definite one, by its Cholesky factor.

    >>> distributions.PositiveDefiniteTransform()(flambeau.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositiveDefiniteTransform)

    __hash__ = object.__hash__

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        return LowerCholeskyTransform().inv(fl.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """n(n-1)/2 numbers to the Cholesky factor of a correlation matrix of size n.

    The hyperbolic tangents of the numbers are partial correlations; each row is a point on half a unit sphere, where
    each tells what part of the length left over by those before it takes.

    >>> distributions.CorrCholeskyTransform()(flambeau.zeros(1))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: fl.Tensor) -> fl.Tensor:
        eps = fl.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - partial * partial).sqrt().cumprod(-1)
        unit = fl.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + unit) * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: fl.Tensor) -> fl.Tensor:
        left = F.pad((1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        return (tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        left = tril_matrix_to_vec(1 - (y * y).cumsum(-1), diag=-2)
        return left.log().sum(-1) / 2 + TanhTransform().log_abs_det_jacobian(x, x).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        if len(shape) < 1:
            raise ValueError("[CorrCholeskyTransform] expected at least one dimension, got none")
        count = shape[-1]
        n = round((1 + math.sqrt(1 + 8 * count)) / 2)
        if n * (n - 1) // 2 != count:
            raise ValueError(f"[CorrCholeskyTransform] expected n(n-1)/2 numbers, got {count}")
        return fl.Size((*shape[:-1], n, n))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"[CorrCholeskyTransform] expected a square matrix, got shape {tuple(shape)}")
        return fl.Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))
