"""The Kullback-Leibler divergence of pairs of distributions, in closed form where one is registered."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import total_ordering
from typing import Any

import flambeau as fl
from flambeau.distributions._composed import Independent, TransformedDistribution
from flambeau.distributions._continuous import Cauchy, ContinuousBernoulli, Laplace, Normal, Uniform
from flambeau.distributions._discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from flambeau.distributions._gamma import Beta, Dirichlet, Exponential, Gamma
from flambeau.distributions._multivariate import LowRankMultivariateNormal, MultivariateNormal, diagonal, mahalanobis
from flambeau.distributions._transformed import Gumbel, HalfNormal, Pareto
from flambeau.distributions.distribution import Distribution, ExponentialFamily
from flambeau.distributions.utils import _sum_rightmost, euler_constant

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], fl.Tensor]] = {}
_KL_MEMOIZE: dict[tuple[type, type], Callable[[Any, Any], fl.Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Any], Any]:
    """Decorates the function that computes the divergence of a pair of classes (and of their subclasses).

    >>> class Fixed(flambeau.distributions.Normal): ...
    >>> @flambeau.distributions.register_kl(Fixed, Fixed)
    ... def fixed(p, q):
    ...     return flambeau.zeros(())
    >>> flambeau.distributions.kl_divergence(Fixed(0.0, 1.0), Fixed(1.0, 1.0))
    tensor(0.)
    """
    for kind in (type_p, type_q):
        if not isinstance(kind, type):  # a base that is no Distribution is fine: libraries have their own
            raise TypeError(f"[register_kl] expected classes of distributions, got {kind!r}")

    def decorate(function: Any) -> Any:
        _KL_REGISTRY[type_p, type_q] = function
        _KL_MEMOIZE.clear()
        return function

    return decorate


@total_ordering
class _Match:
    """Orders classes by how specific they are: a subclass comes before its base, p counts more than q."""

    def __init__(self, *types: type) -> None:
        self.types = types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Match) and self.types == other.types

    def __le__(self, other: _Match) -> bool:
        for mine, theirs in zip(self.types, other.types):
            if not issubclass(mine, theirs):
                return False
            if mine is not theirs:
                break
        return True


def _find(type_p: type, type_q: type) -> Callable[[Any, Any], fl.Tensor] | None:
    matches = [pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not matches:
        return None
    by_p = min(_Match(*pair) for pair in matches).types
    by_q = tuple(reversed(min(_Match(*reversed(pair)) for pair in matches).types))
    if _KL_REGISTRY[by_p] is not _KL_REGISTRY[by_q]:  # type: ignore[index]
        import warnings

        warnings.warn(
            f"[kl_divergence] {type_p.__name__} and {type_q.__name__} match two registered functions equally well; "
            f"register_kl({by_p[0].__name__}, {by_q[1].__name__}) would decide",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[by_p]  # type: ignore[index]


def kl_divergence(p: Distribution, q: Distribution) -> fl.Tensor:
    """The expectation under p of log p - log q, for each element of the batch.

    >>> normal = flambeau.distributions.Normal
    >>> flambeau.distributions.kl_divergence(normal(0.0, 1.0), normal(1.0, 1.0))
    tensor(0.5000)
    """
    pair = (type(p), type(q))
    function = _KL_MEMOIZE.get(pair)
    if function is None:
        function = _find(*pair)
        if function is None:
            raise NotImplementedError(
                f"[kl_divergence] expected a pair of classes with a formula, got {pair[0].__name__} and {pair[1].__name__}"
            )
        _KL_MEMOIZE[pair] = function
    return function(p, q)


def _x_log_x(tensor: fl.Tensor) -> fl.Tensor:
    return fl.special.xlogy(tensor, tensor)


def _where_inside(inside: fl.Tensor, result: fl.Tensor) -> fl.Tensor:
    """Infinite where p reaches beyond the support of q."""
    return result.masked_fill(~inside, math.inf)


# ---------------------------------------------------------------- pairs of one class


@register_kl(Bernoulli, Bernoulli)
def _bernoulli_bernoulli(p: Bernoulli, q: Bernoulli) -> fl.Tensor:
    # Where either probability is certain, the logarithm of zero has to count as 0 or infinity.
    ones = p.probs * (fl.nn.functional.softplus(-q.logits) - fl.nn.functional.softplus(-p.logits))
    ones = ones.masked_fill(q.probs == 0, math.inf).masked_fill(p.probs == 0, 0)
    zeros = (1 - p.probs) * (fl.nn.functional.softplus(q.logits) - fl.nn.functional.softplus(p.logits))
    zeros = zeros.masked_fill(q.probs == 1, math.inf).masked_fill(p.probs == 1, 0)
    return ones + zeros


@register_kl(Beta, Beta)
def _beta_beta(p: Beta, q: Beta) -> fl.Tensor:
    return _dirichlet_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Binomial, Binomial)
def _binomial_binomial(p: Binomial, q: Binomial) -> fl.Tensor:
    if (p.total_count < q.total_count).any():
        raise NotImplementedError(
            "[kl_divergence] expected binomials with q.total_count <= p.total_count, got more in q"
        )
    divergence = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    more = p.total_count > q.total_count
    return divergence.masked_fill(more.expand(divergence.shape), math.inf)


@register_kl(Categorical, Categorical)
def _categorical_categorical(p: Categorical, q: Categorical) -> fl.Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = fl.where(q.probs == 0, math.inf, terms)
    return fl.where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot_one_hot(p: OneHotCategorical, q: OneHotCategorical) -> fl.Tensor:
    return _categorical_categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> fl.Tensor:
    linear = p.mean * (p.logits - q.logits)
    return linear + p._cont_bern_log_norm() + fl.log1p(-p.probs) - q._cont_bern_log_norm() - fl.log1p(-q.probs)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet_dirichlet(p: Dirichlet, q: Dirichlet) -> fl.Tensor:
    total_p, total_q = p.concentration.sum(-1), q.concentration.sum(-1)
    constant = fl.lgamma(total_p) - fl.lgamma(total_q)
    norms = (fl.lgamma(q.concentration) - fl.lgamma(p.concentration)).sum(-1)
    logs = fl.digamma(p.concentration) - fl.digamma(total_p).unsqueeze(-1)
    return constant + norms + ((p.concentration - q.concentration) * logs).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential_exponential(p: Exponential, q: Exponential) -> fl.Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _family_family(p: ExponentialFamily, q: ExponentialFamily) -> fl.Tensor:
    """The Bregman divergence of the log-normalizer."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"[kl_divergence] expected a pair of classes with a formula, got {type(p).__name__} and {type(q).__name__}"
        )
    natural, normalizer, gradients = p._normalizer_and_gradients()
    other = q._natural_params
    result = q._log_normalizer(*other) - normalizer
    for mine, theirs, gradient in zip(natural, other, gradients):
        result = result - _sum_rightmost((theirs - mine) * gradient, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma_gamma(p: Gamma, q: Gamma) -> fl.Tensor:
    return (
        q.concentration * (p.rate / q.rate).log()
        + fl.lgamma(q.concentration)
        - fl.lgamma(p.concentration)
        + (p.concentration - q.concentration) * fl.digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _gumbel_gumbel(p: Gumbel, q: Gumbel) -> fl.Tensor:
    ratio = p.scale / q.scale
    shift, offset = q.loc / q.scale, p.loc / q.scale
    tail = (shift - offset + fl.lgamma(1 + ratio)).exp()
    return offset - shift - ratio.log() + euler_constant * ratio + tail - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric_geometric(p: Geometric, q: Geometric) -> fl.Tensor:
    return -p.entropy() - fl.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: HalfNormal, q: HalfNormal) -> fl.Tensor:
    return _normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace_laplace(p: Laplace, q: Laplace) -> fl.Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal_normal(p: Normal, q: Normal) -> fl.Tensor:
    squared = (p.scale / q.scale).pow(2)
    return (squared + ((p.loc - q.loc) / q.scale).pow(2) - 1 - squared.log()) / 2


@register_kl(Pareto, Pareto)
def _pareto_pareto(p: Pareto, q: Pareto) -> fl.Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _where_inside(p.support.lower_bound >= q.support.lower_bound, result)


@register_kl(Poisson, Poisson)
def _poisson_poisson(p: Poisson, q: Poisson) -> fl.Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform_uniform(p: Uniform, q: Uniform) -> fl.Tensor:
    return _where_inside((q.low <= p.low) & (q.high >= p.high), ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(Cauchy, Cauchy)
def _cauchy_cauchy(p: Cauchy, q: Cauchy) -> fl.Tensor:
    return ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed_transformed(p: TransformedDistribution, q: TransformedDistribution) -> fl.Tensor:
    """A bijection applied to both changes nothing."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("[kl_divergence] expected the same transforms and events, got others")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent_independent(p: Independent, q: Independent) -> fl.Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("[kl_divergence] expected the same number of reinterpreted dimensions, got others")
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ---------------------------------------------------------------- multivariate normal


def _normal_divergence(log_det_ratio: fl.Tensor, trace: fl.Tensor, distance: fl.Tensor, n: int) -> fl.Tensor:
    return (log_det_ratio + trace + distance - n) / 2


def _check_events(p: Distribution, q: Distribution) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"[kl_divergence] expected events of one shape, got {tuple(p.event_shape)} and {tuple(q.event_shape)}"
        )


def _trace_in(factor: fl.Tensor, matrix: fl.Tensor) -> fl.Tensor:
    """tr((L L')^-1 M M')."""
    return fl.linalg.solve_triangular(factor, matrix, upper=False).pow(2).sum((-2, -1))


@register_kl(MultivariateNormal, MultivariateNormal)
def _mvn_mvn(p: MultivariateNormal, q: MultivariateNormal) -> fl.Tensor:
    _check_events(p, q)
    n, factor = p.event_shape[0], q._unbroadcasted_scale_tril
    log_det = 2 * (q._half_log_det() - p._half_log_det())
    trace = _trace_in(factor, p._unbroadcasted_scale_tril)
    return _normal_divergence(log_det, trace, mahalanobis(factor, q.loc - p.loc), n)


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_mvn(p: LowRankMultivariateNormal, q: MultivariateNormal) -> fl.Tensor:
    _check_events(p, q)
    n, factor = p.event_shape[0], q._unbroadcasted_scale_tril
    log_det = 2 * q._half_log_det() - p._log_det()
    diag = p._unbroadcasted_cov_diag.sqrt().diag_embed()
    trace = _trace_in(factor, p._unbroadcasted_cov_factor) + _trace_in(factor, diag)
    return _normal_divergence(log_det, trace, mahalanobis(factor, q.loc - p.loc), n)


def _into_low_rank(
    p: Distribution, q: LowRankMultivariateNormal, log_det_p: fl.Tensor, roots: list[fl.Tensor]
) -> fl.Tensor:
    """From a covariance given as a sum of squares of matrices; the inverse of q's is D^-1 - A'A (Woodbury)."""
    _check_events(p, q)
    diag, n = q._unbroadcasted_cov_diag, p.event_shape[0]
    weighted = q._unbroadcasted_cov_factor.mT / diag.unsqueeze(-2)
    inner = fl.linalg.solve_triangular(q._capacitance_tril, weighted, upper=False)
    x = q.loc - p.loc
    distance = (x.pow(2) / diag).sum(-1) - (inner @ x.unsqueeze(-1)).pow(2).sum((-2, -1))
    trace: Any = 0
    for root in roots:
        trace = trace + (root.pow(2) / diag.unsqueeze(-1)).sum((-2, -1)) - (inner @ root).pow(2).sum((-2, -1))
    return _normal_divergence(q._log_det() - log_det_p, trace, distance, n)


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _mvn_low_rank(p: MultivariateNormal, q: LowRankMultivariateNormal) -> fl.Tensor:
    log_det = 2 * diagonal(p._unbroadcasted_scale_tril).log().sum(-1)
    return _into_low_rank(p, q, log_det, [p._unbroadcasted_scale_tril])


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank_low_rank(p: LowRankMultivariateNormal, q: LowRankMultivariateNormal) -> fl.Tensor:
    roots = [p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()]
    return _into_low_rank(p, q, p._log_det(), roots)


# ---------------------------------------------------------------- pairs of two classes
# The divergence is the cross entropy less the entropy. For q from an exponential family the cross entropy needs only
# a few expectations under p.


def _cross_beta(p_log: fl.Tensor, p_log1m: fl.Tensor, q: Beta) -> fl.Tensor:
    a, b = q.concentration1, q.concentration0
    return fl.lgamma(a) + fl.lgamma(b) - fl.lgamma(a + b) - (a - 1) * p_log - (b - 1) * p_log1m


def _cross_continuous_bernoulli(mean: fl.Tensor, q: ContinuousBernoulli) -> fl.Tensor:
    return -mean * q.logits - fl.log1p(-q.probs) - q._cont_bern_log_norm()


def _cross_exponential(mean: fl.Tensor, q: Exponential) -> fl.Tensor:
    return q.rate * mean - q.rate.log()


def _cross_gamma(mean: fl.Tensor, mean_log: fl.Tensor, q: Gamma) -> fl.Tensor:
    a, b = q.concentration, q.rate
    return fl.lgamma(a) - a * b.log() - (a - 1) * mean_log + b * mean


def _cross_normal(mean: fl.Tensor, variance: fl.Tensor, q: Normal) -> fl.Tensor:
    squares = (variance + (mean - q.loc).pow(2)) / q.scale.pow(2)
    return (math.log(2 * math.pi) + squares) / 2 + q.scale.log()


def _cross_gumbel(mean: fl.Tensor, mean_exp: fl.Tensor, q: Gumbel) -> fl.Tensor:
    """`mean_exp` is the expectation of exp(-x / q.scale)."""
    return q.scale.log() + (mean - q.loc) / q.scale + (q.loc / q.scale).exp() * mean_exp


def _cross_uniform(q: Uniform) -> fl.Tensor:
    return (q.high - q.low).log()


def _never(p_type: type, *q_types: type) -> None:
    """p reaches beyond the support of q whatever the parameters."""
    for q_type in q_types:
        register_kl(p_type, q_type)(_infinite)


def _infinite(p: Any, q: Any) -> fl.Tensor:
    shape = fl.broadcast_shapes(p.batch_shape, q.batch_shape)
    like = next(value for value in p.__dict__.values() if isinstance(value, fl.Tensor)) if not isinstance(p, Beta) else p.concentration0  # fmt: skip
    return fl.full(shape, math.inf, dtype=like.dtype, device=like.device)


_never(Beta, Pareto)
_never(ContinuousBernoulli, Pareto)
_never(Exponential, Uniform, Pareto, ContinuousBernoulli, Beta)
_never(Gamma, Uniform, Pareto, ContinuousBernoulli, Beta)
_never(Gumbel, Uniform, Pareto, Gamma, Exponential, ContinuousBernoulli, Beta)
_never(Laplace, Uniform, Pareto, Gamma, Exponential, ContinuousBernoulli, Beta)
_never(Normal, Uniform, Pareto, Gamma, Exponential, ContinuousBernoulli, Beta)
_never(Pareto, Uniform, ContinuousBernoulli, Beta)
_never(Poisson, Bernoulli, Binomial)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> fl.Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


def _beta_logs(p: Beta) -> tuple[fl.Tensor, fl.Tensor]:
    total = fl.digamma(p.concentration1 + p.concentration0)
    return fl.digamma(p.concentration1) - total, fl.digamma(p.concentration0) - total


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Beta, q: ContinuousBernoulli) -> fl.Tensor:
    return _cross_continuous_bernoulli(p.mean, q) - p.entropy()


@register_kl(Beta, Exponential)
def _beta_exponential(p: Beta, q: Exponential) -> fl.Tensor:
    return _cross_exponential(p.mean, q) - p.entropy()


@register_kl(Beta, Gamma)
def _beta_gamma(p: Beta, q: Gamma) -> fl.Tensor:
    return _cross_gamma(p.mean, _beta_logs(p)[0], q) - p.entropy()


@register_kl(Beta, Normal)
def _beta_normal(p: Beta, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> fl.Tensor:
    return _where_inside((q.low <= 0) & (q.high >= 1), _cross_uniform(q) - p.entropy())


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p: ContinuousBernoulli, q: Exponential) -> fl.Tensor:
    return _cross_exponential(p.mean, q) - p.entropy()


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p: ContinuousBernoulli, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: ContinuousBernoulli, q: Uniform) -> fl.Tensor:
    return _where_inside((q.low <= 0) & (q.high >= 1), _cross_uniform(q) - p.entropy())


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Exponential, q: Gamma) -> fl.Tensor:
    return _cross_gamma(p.mean, -euler_constant - p.rate.log(), q) - p.entropy()


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Exponential, q: Gumbel) -> fl.Tensor:
    product = p.rate * q.scale
    return _cross_gumbel(p.mean, product / (product + 1), q) - p.entropy()


@register_kl(Exponential, Normal)
def _exponential_normal(p: Exponential, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Gamma, q: Exponential) -> fl.Tensor:
    return _cross_exponential(p.mean, q) - p.entropy()


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Gamma, q: Gumbel) -> fl.Tensor:
    mean_exp = (-p.concentration * fl.log1p(1 / (p.rate * q.scale))).exp()
    return _cross_gumbel(p.mean, mean_exp, q) - p.entropy()


@register_kl(Gamma, Normal)
def _gamma_normal(p: Gamma, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Gumbel, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(Laplace, Normal)
def _laplace_normal(p: Laplace, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Normal, q: Gumbel) -> fl.Tensor:
    mean_exp = ((p.scale / q.scale).pow(2) / 2 - p.loc / q.scale).exp()
    return _cross_gumbel(p.mean, mean_exp, q) - p.entropy()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> fl.Tensor:
    z = (p.loc - q.loc) / p.scale
    distance = p.scale * (math.sqrt(2 / math.pi) * (-z.pow(2) / 2).exp() + z * fl.erf(z / math.sqrt(2)))
    return distance / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Pareto, q: Exponential) -> fl.Tensor:
    return _cross_exponential(p.mean, q) - p.entropy()


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Pareto, q: Gamma) -> fl.Tensor:
    return _where_inside(p.alpha > 1, _cross_gamma(p.mean, p.scale.log() + p.alpha.reciprocal(), q) - p.entropy())


@register_kl(Pareto, Normal)
def _pareto_normal(p: Pareto, q: Normal) -> fl.Tensor:
    return _where_inside(p.alpha > 2, _cross_normal(p.mean, p.variance, q) - p.entropy())


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> fl.Tensor:
    width = p.high - p.low
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low)) / width - 1
    mean_log1m = (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / width - 1
    return _where_inside((p.low >= 0) & (p.high <= 1), _cross_beta(mean_log, mean_log1m, q) - p.entropy())


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Uniform, q: ContinuousBernoulli) -> fl.Tensor:
    return _where_inside((p.low >= 0) & (p.high <= 1), _cross_continuous_bernoulli(p.mean, q) - p.entropy())


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> fl.Tensor:
    return _where_inside(p.low >= 0, _cross_exponential(p.mean, q) - p.entropy())


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> fl.Tensor:
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1
    return _where_inside(p.low >= 0, _cross_gamma(p.mean, mean_log, q) - p.entropy())


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Uniform, q: Gumbel) -> fl.Tensor:
    mean_exp = q.scale * ((-p.low / q.scale).exp() - (-p.high / q.scale).exp()) / (p.high - p.low)
    return _cross_gumbel(p.mean, mean_exp, q) - p.entropy()


@register_kl(Uniform, Normal)
def _uniform_normal(p: Uniform, q: Normal) -> fl.Tensor:
    return _cross_normal(p.mean, p.variance, q) - p.entropy()


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> fl.Tensor:
    mean_log = (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1
    cross = (q.alpha + 1) * mean_log - q.alpha.log() - q.alpha * q.scale.log()
    return _where_inside(p.low >= q.support.lower_bound, cross - p.entropy())
