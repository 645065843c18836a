"""Samples of reductions that are no plain folds, of statistics and of random numbers."""

from __future__ import annotations

from flambeau.ops.samples import call, samples


@samples("max.dim", "min.dim", "argmax", "argmin")
def extremes(make):
    yield call(make(2, 3), 1)
    yield call(make.strided(3, 2), 0, True)


@samples("aminmax", "median", "nanmedian", "msort")
def whole(make):
    yield call(make(2, 3))


@samples("var", "std", "var_mean", "std_mean")
def spread(make):
    yield call(make(2, 3))
    yield call(make.strided(3, 2), False)


@samples("var.dim", "std.dim", "var_mean.dim", "std_mean.dim")
def spread_dims(make):
    yield call(make(2, 3), [1])
    yield call(make(2, 2, 3), [0, 2], False, True)


@samples("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def spread_correction(make):
    yield call(make(2, 4), [1], correction=2)
    yield call(make(2, 3), correction=0, keepdim=True)


@samples("_norm_p")
def norm_p(make):
    yield call(make(2, 3), 3.0, [1])
    yield call(make(2, 3), 1.5, [0], True)


@samples("_norm_0", "_norm_1", "_norm_2", "_norm_inf", "_norm_neg_inf")
def norms(make):
    yield call(make(2, 3), [1])
    yield call(make.strided(2, 3), [0, 1], True)


@samples("linalg_vector_norm")
def vector_norm(make):
    for order in (2, 1, 3.5, float("inf"), 0):
        yield call(make(2, 3), order, [1])
    yield call(make(2, 3))


@samples("linalg_norm")
def linalg_norm(make):
    yield call(make(2, 3))
    yield call(make(3), 3)


@samples("norm")
def norm(make):
    yield call(make(2, 3))
    yield call(make(2, 3), 3, [1], True)


@samples("renorm")
def renorm(make):
    yield call(make(2, 3), 2, 0, 0.7)


@samples("dist")
def dist(make):
    yield call(make(2, 3), make(3), 3)


@samples("_logsumexp", "logsumexp", "special_logsumexp")
def logsumexp(make):
    yield call(make(2, 3), [1])
    yield call(make.strided(2, 3), [0, 1], True)


@samples("diff")
def diff(make):
    yield call(make(2, 4))
    yield call(make(4), 2, 0, make(1))


@samples("cov", "corrcoef")
def cov(make):
    yield call(make(2, 4))


@samples("trapz.x", "trapezoid.x", "cumulative_trapezoid.x")
def trapezoid(make):
    yield call(make(2, 3), make(3))


@samples("multinomial")
def multinomial(make):
    yield call(make.constant(2, 3), 2)


@samples("random_.from")
def random_from(make):
    yield call(make(2, 3), 1, 5)


@samples("random_.to")
def random_to(make):
    yield call(make(2, 3), 5)


@samples("randint_like")
def randint_like(make):
    yield call(make(2, 3), 5)


@samples("randint_like.low_dtype")
def randint_like_low(make):
    yield call(make(2, 3), 1, 5)


@samples("native_dropout")
def native_dropout(make):
    yield call(make(2, 3), 0.4, True)


@samples("bernoulli_.Tensor")
def draws(make):
    yield call(make.positive(2, 3), make.positive(2, 3))


@samples("binomial")
def binomial(make):
    yield call(make.constant(2, 3, low=2.0, high=5.0), make.constant(2, 3))


@samples("_sample_dirichlet")
def dirichlet(make):
    yield call(make.constant(2, 3))


@samples("_standard_gamma")
def standard_gamma(make):
    """Samples are drawn by rejection, so that they jump where a finite difference is taken."""
    yield call(make.constant(2, 3))


@samples("poisson", "bernoulli")
def drawn(make):
    yield call(make.positive(2, 3))


@samples("count_nonzero")
def count_nonzero(make):
    yield call(make(2, 3))
    yield call(make(2, 3), [1])


@samples("nonzero_static")
def nonzero_static(make):
    yield call(make(2, 3), size=4)
