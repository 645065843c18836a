"""Samples of random numbers."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("multinomial")
def multinomial(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3), 2)


@samples("random_.from")
def random_from(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, 5)


@samples("random_.to")
def random_to(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 5)


@samples("randint_like")
def randint_like(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 5)


@samples("randint_like.low_dtype")
def randint_like_low(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, 5)


@samples("native_dropout")
def native_dropout(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 0.4, True)


@samples("bernoulli_.Tensor")
def draws(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3), make.positive(2, 3))


@samples("binomial")
def binomial(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3, low=2.0, high=5.0), make.constant(2, 3))


@samples("_sample_dirichlet")
def dirichlet(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3))


@samples("_standard_gamma")
def standard_gamma(make: Make) -> Iterator[Call]:
    """Samples are drawn by rejection, so that they jump where a finite difference is taken."""
    yield call(make.constant(2, 3))


@samples("poisson", "bernoulli")
def drawn(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3))
