"""Distributions of vectors and matrices: multivariate normal, Wishart, correlations."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.distributions import constraints
from flambeau.distributions._gamma import Beta, standard_gamma
from flambeau.distributions.distribution import Distribution, ExponentialFamily, checked
from flambeau.distributions.utils import _standard_normal, lazy_property

__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart"]

LOG_2PI = math.log(2 * math.pi)


def diagonal(matrix: fl.Tensor) -> fl.Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def times(matrix: fl.Tensor, vector: fl.Tensor) -> fl.Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def mahalanobis(factor: fl.Tensor, x: fl.Tensor) -> fl.Tensor:
    """x' (L L')^-1 x for batches of either; a factor shared by many vectors is solved for all of them at once."""
    n = x.shape[-1]
    if factor.dim() == 2:
        solved = fl.linalg.solve_triangular(factor, x.reshape(-1, n).mT, upper=False)
        return solved.pow(2).sum(0).reshape(x.shape[:-1])
    solved = fl.linalg.solve_triangular(factor, x.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).pow(2).sum(-1)


def factor_of_precision(precision: fl.Tensor) -> fl.Tensor:
    """The lower triangular L with (L L')^-1 = precision: factor it back to front, then invert the triangle."""
    flipped = fl.linalg.cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    unit = fl.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return fl.linalg.solve_triangular(flipped, unit, upper=False)


def one_of(name: str, **candidates: Any) -> tuple[str, fl.Tensor]:
    """The one matrix that was given."""
    present = [(key, value) for key, value in candidates.items() if value is not None]
    if len(present) != 1:
        raise ValueError(f"[{name}] expected exactly one of {', '.join(candidates)}, got {len(present)}")
    key, value = present[0]
    if value.dim() < 2:
        raise ValueError(f"[{name}] expected {key} to be a matrix or a batch of them, got {value.dim()} dimensions")
    return key, value


class _OfScale(Distribution):
    """Has a positive definite matrix, kept as its Cholesky factor and shown in three forms."""

    _unbroadcasted_scale_tril: fl.Tensor

    def _keep_factor(self, kind: str, matrix: fl.Tensor) -> None:
        if kind == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif kind == "covariance_matrix":
            self._unbroadcasted_scale_tril = fl.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = factor_of_precision(matrix)

    def _matrix_shape(self) -> tuple[int, ...]:
        return (*self._batch_shape, self._event_shape[-1], self._event_shape[-1])

    @lazy_property
    def scale_tril(self) -> fl.Tensor:
        return self._unbroadcasted_scale_tril.expand(self._matrix_shape())

    @lazy_property
    def covariance_matrix(self) -> fl.Tensor:
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self) -> fl.Tensor:
        return fl.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._matrix_shape())

    def _half_log_det(self) -> fl.Tensor:
        return diagonal(self._unbroadcasted_scale_tril).log().sum(-1)


class MultivariateNormal(_OfScale):
    """The normal distribution of vectors, by its covariance, precision, or the Cholesky factor of the covariance.

    >>> distributions.MultivariateNormal(flambeau.zeros(2), flambeau.eye(2)).entropy()
    tensor(2.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: fl.Tensor,
        covariance_matrix: fl.Tensor | None = None,
        precision_matrix: fl.Tensor | None = None,
        scale_tril: fl.Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("[MultivariateNormal] expected loc to have at least one dimension, got a number")
        kind, matrix = one_of(
            "MultivariateNormal",
            covariance_matrix=covariance_matrix,
            scale_tril=scale_tril,
            precision_matrix=precision_matrix,
        )
        batch = fl.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand((*batch, loc.shape[-1]))
        setattr(self, kind, matrix.expand((*batch, *matrix.shape[-2:])))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._keep_factor(kind, matrix)

    @property
    def mean(self) -> fl.Tensor:
        return self.loc

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    @property
    def variance(self) -> fl.Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand((*self._batch_shape, *self._event_shape))

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + times(self._unbroadcasted_scale_tril, noise)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        distance = mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -(self._event_shape[0] * LOG_2PI + distance) / 2 - self._half_log_det()

    def entropy(self) -> fl.Tensor:
        result = self._event_shape[0] * (1 + LOG_2PI) / 2 + self._half_log_det()
        return result.expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """A normal distribution with covariance W W' + diag(d), handled through matrices of the rank of W.

    >>> distributions.LowRankMultivariateNormal(flambeau.zeros(2), flambeau.ones(2, 1), flambeau.ones(2)).covariance_matrix
    tensor([[2., 1.],
            [1., 2.]])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _event_dims = {"covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2, "variance": 1}

    def __init__(
        self, loc: fl.Tensor, cov_factor: fl.Tensor, cov_diag: fl.Tensor, validate_args: bool | None = None
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("[LowRankMultivariateNormal] expected loc to have at least one dimension, got a number")
        event = loc.shape[-1]
        if cov_factor.dim() < 2 or cov_factor.shape[-2] != event:
            raise ValueError(
                f"[LowRankMultivariateNormal] expected cov_factor of {event} rows, got shape {tuple(cov_factor.shape)}"
            )
        if cov_diag.dim() < 1 or cov_diag.shape[-1] != event:
            raise ValueError(
                f"[LowRankMultivariateNormal] expected cov_diag of length {event}, got shape {tuple(cov_diag.shape)}"
            )
        try:
            batch = fl.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(f"[LowRankMultivariateNormal] expected batch shapes that fit: {error}") from error
        self.loc = loc.expand((*batch, event))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch, event))
        super().__init__(batch, (event,), validate_args=validate_args)
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        # By the matrix determinant lemma all goes through I + W' D^-1 W, a matrix of the rank of W.
        weighted = cov_factor.mT / cov_diag.unsqueeze(-2)
        unit = fl.eye(cov_factor.shape[-1], dtype=loc.dtype, device=loc.device)
        self._capacitance_tril = fl.linalg.cholesky(unit + weighted @ cov_factor)

    @property
    def mean(self) -> fl.Tensor:
        return self.loc

    @property
    def mode(self) -> fl.Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> fl.Tensor:
        result = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return result.expand((*self._batch_shape, *self._event_shape))

    def _full(self, matrix: fl.Tensor) -> fl.Tensor:
        n = self._event_shape[0]
        return matrix.expand((*self._batch_shape, n, n))

    @lazy_property
    def covariance_matrix(self) -> fl.Tensor:
        factor = self._unbroadcasted_cov_factor
        return self._full(factor @ factor.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def scale_tril(self) -> fl.Tensor:
        return self._full(fl.linalg.cholesky(self.covariance_matrix))

    @lazy_property
    def precision_matrix(self) -> fl.Tensor:
        weighted = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        solved = fl.linalg.solve_triangular(self._capacitance_tril, weighted, upper=False)
        return self._full(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - solved.mT @ solved)

    def rsample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        shape = self._extended_shape(sample_shape)
        low = _standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc.dtype, self.loc.device)
        each = _standard_normal(shape, self.loc.dtype, self.loc.device)
        return self.loc + times(self._unbroadcasted_cov_factor, low) + self._unbroadcasted_cov_diag.sqrt() * each

    def _log_det(self) -> fl.Tensor:
        return 2 * diagonal(self._capacitance_tril).log().sum(-1) + self._unbroadcasted_cov_diag.log().sum(-1)

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        x = value - self.loc
        weighted = x / self._unbroadcasted_cov_diag
        inside = times(self._unbroadcasted_cov_factor.mT, weighted)
        distance = (x * weighted).sum(-1) - mahalanobis(self._capacitance_tril, inside)
        return -(self._event_shape[0] * LOG_2PI + self._log_det() + distance) / 2

    def entropy(self) -> fl.Tensor:
        result = (self._event_shape[0] * (1 + LOG_2PI) + self._log_det()) / 2
        return result.expand(self._batch_shape)


class Wishart(_OfScale, ExponentialFamily):
    """The scatter matrix of `df` draws of a multivariate normal distribution.

    >>> distributions.Wishart(3.0, flambeau.eye(2)).mean
    tensor([[3., 0.],
            [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: fl.Tensor | None = None,
        precision_matrix: fl.Tensor | None = None,
        scale_tril: fl.Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        kind, matrix = one_of(
            "Wishart", covariance_matrix=covariance_matrix, scale_tril=scale_tril, precision_matrix=precision_matrix
        )
        if not isinstance(df, fl.Tensor):
            df = fl.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch = fl.broadcast_shapes(matrix.shape[:-2], df.shape)
        event = matrix.shape[-2:]
        if not (df > event[-1] - 1).all():
            raise ValueError(f"[Wishart] expected df > {event[-1] - 1}, one less than the size of the matrix, got {df}")
        self.df = df.expand(batch)
        setattr(self, kind, matrix.expand((*batch, *event)))
        super().__init__(batch, event, validate_args=validate_args)
        self._keep_factor(kind, matrix)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        n = (self.__dict__.get("_event_shape") or (1,))[-1]
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(n - 1),
        }

    def _per_row(self) -> fl.Tensor:
        """The degrees of freedom of the rows of Bartlett's factor: df, df - 1, ..."""
        n = self._event_shape[-1]
        return self.df.unsqueeze(-1) - fl.arange(n, dtype=self.df.dtype, device=self.df.device)

    @property
    def mean(self) -> fl.Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> fl.Tensor:
        factor = self.df - self._event_shape[-1] - 1
        return factor.masked_fill(factor <= 0, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> fl.Tensor:
        covariance = self.covariance_matrix
        spread = diagonal(covariance)
        return self.df[..., None, None] * (covariance.pow(2) + spread.unsqueeze(-1) * spread.unsqueeze(-2))

    def rsample(self, sample_shape: Any = fl.Size(), max_try_correction: int | None = None) -> fl.Tensor:
        """Bartlett's decomposition: chi variables on the diagonal, normal ones below it."""
        shape = self._extended_shape(sample_shape)
        squares = 2 * standard_gamma(self._per_row().expand(shape[:-1]) / 2)
        lower = _standard_normal(shape, self.df.dtype, self.df.device).tril(-1)
        factor = self._unbroadcasted_scale_tril @ (lower + squares.sqrt().diag_embed())
        return factor @ factor.mT

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        n = self._event_shape[-1]
        half = self.df / 2
        trace = diagonal(fl.cholesky_solve(value, self._unbroadcasted_scale_tril)).sum(-1)
        log_det = fl.linalg.slogdet(value).logabsdet
        normalizer = self.df * (self._half_log_det() + n * math.log(2) / 2) + fl.mvlgamma(half, p=n)
        return (self.df - n - 1) / 2 * log_det - trace / 2 - normalizer

    def entropy(self) -> fl.Tensor:
        n = self._event_shape[-1]
        half = self.df / 2
        digammas = fl.digamma(self._per_row() / 2).sum(-1)
        return (
            (n + 1) * (self._half_log_det() + n * math.log(2) / 2)
            + fl.mvlgamma(half, p=n)
            - (self.df - n - 1) / 2 * digammas
            + n * half
        )

    @property
    def _natural_params(self) -> tuple[fl.Tensor, fl.Tensor]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: fl.Tensor, y: fl.Tensor) -> fl.Tensor:
        n = self._event_shape[-1]
        return (y + (n + 1) / 2) * (n * math.log(2) - fl.linalg.slogdet(-2 * x).logabsdet) + fl.mvlgamma(
            y + (n + 1) / 2, p=n
        )


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices with density det^(concentration - 1).

    >>> distributions.LKJCholesky(3, 0.5).sample().shape
    torch.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _nested = ("_beta",)

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"[LKJCholesky] expected a dimension of at least 2, got {dim}")
        self.dim = dim
        if not isinstance(concentration, fl.Tensor):
            concentration = fl.tensor(concentration, dtype=fl.get_default_dtype())
        self.concentration = concentration
        super().__init__(concentration.size(), (dim, dim), validate_args=validate_args)
        # Rows of the factor are points in a ball: a direction and a squared distance with a beta distribution.
        offset = fl.arange(dim - 1, dtype=concentration.dtype, device=concentration.device)
        offset = fl.cat([offset.new_zeros(1), offset])
        self._beta = Beta(offset + 0.5, concentration.unsqueeze(-1) + (dim - 2) / 2 - offset / 2)

    def _expand_nested(self, name: str, value: Any, batch_shape: fl.Size) -> Any:
        return value.expand((*batch_shape, self.dim))

    def sample(self, sample_shape: Any = fl.Size()) -> fl.Tensor:
        """The onion method: row after row, each a random direction of random length, completed to a unit vector."""
        with fl.no_grad():
            squared = self._beta.sample(sample_shape).unsqueeze(-1)
            noise = _standard_normal(self._extended_shape(sample_shape), squared.dtype, squared.device).tril(-1)
            direction = noise / noise.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0
            rows = squared.sqrt() * direction
            tiny = fl.finfo(rows.dtype).tiny
            return rows + (1 - rows.pow(2).sum(-1)).clamp(min=tiny).sqrt().diag_embed()

    @checked
    def log_prob(self, value: fl.Tensor) -> fl.Tensor:
        n = self.dim
        diag = diagonal(value)[..., 1:]
        order = fl.arange(2, n + 1, dtype=self.concentration.dtype, device=self.concentration.device)
        exponents = 2 * (self.concentration - 1).unsqueeze(-1) + n - order
        density = (exponents * diag.log()).sum(-1)
        alpha = self.concentration + (n - 1) / 2
        log_below = fl.lgamma(alpha) * (n - 1)
        log_above = fl.mvlgamma(alpha - 0.5, n - 1)
        return density - ((n - 1) * math.log(math.pi) / 2 + log_above - log_below)
