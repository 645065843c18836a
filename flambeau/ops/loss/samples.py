"""Samples of losses."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Constant, Make, call, domain, first, samples


@samples("_nll_loss_forward", "_cross_entropy_forward")
def class_losses(make: Make) -> Iterator[Call]:
    yield call(make(3, 4), make.index([1, 3, 0]), None, 1, -100).then(first)
    yield call(make(3, 4), make.index([1, 3, 0]), make.constant(4), 0, 3).then(first)
    yield call(make(2, 3, 2), make.index([[1, 2], [0, 2]]), None, 2, -100).then(first)
    yield call(make(4), make.index(1), None, 1, -100).then(first)


@samples("_nll_loss_backward")
def nll_loss_backward(make: Make) -> Iterator[Call]:
    total = make.constant()
    yield call(make.constant(low=None), [3, 4], make.index([1, 3, 0]), make.constant(4), 1, 3, total)
    yield call(make.constant(2, 2, low=None), [2, 3, 2], make.index([[1, 2], [0, 2]]), None, 0, -100, total)


@samples("_cross_entropy_backward")
def cross_entropy_backward(make: Make) -> Iterator[Call]:
    weight, total = make.constant(4), make.constant()
    x = make(3, 4)
    sums = Constant(x.logsumexp(1))
    yield call(make.constant(low=None), Constant(x), make.index([1, 3, 0]), weight, 1, 3, total, sums)
    x = make(2, 3, 2)
    sums = Constant(x.logsumexp(1))
    yield call(make.constant(2, 2, low=None), Constant(x), make.index([[1, 2], [0, 2]]), None, 0, -100, total, sums)


@samples("nll_loss")
def nll_loss(make: Make) -> Iterator[Call]:
    yield call(make(3, 4), make.index([1, 3, 0]))
    yield call(make(2, 3, 2), make.index([[1, 2], [0, 2]]), reduction="sum")


@samples("cross_entropy")
def cross_entropy(make: Make) -> Iterator[Call]:
    yield call(make(3, 4), make.index([1, 3, 0]))
    yield call(make(3, 4), make.index([1, 3, 0]), make.constant(4), label_smoothing=0.2, reduction="none")
    yield call(make(3, 4), make.positive(3, 4))


@samples("linear_cross_entropy")
def linear_cross_entropy(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), make(4, 2), make.index([1, 3, 0]))


@samples("multi_margin_loss")
def multi_margin_loss(make: Make) -> Iterator[Call]:
    yield call(make(3, 4), make.index([1, 3, 0]))
    yield call(make(3, 4), make.index([1, 3, 0]), 2, 0.7, reduction="none")


@samples("multilabel_margin_loss")
def multilabel_margin_loss(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([[1, 0, -1], [2, -1, 0]]))


@samples("binary_cross_entropy")
def binary_cross_entropy(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3), make.positive(2, 3))
    yield call(make.positive(2, 3), make.positive(2, 3), make.constant(3), reduction="sum")


@samples("nn_kl_div")
def kl_div(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.positive(2, 3))


@samples("gaussian_nll_loss")
def gaussian_nll_loss(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2, 3), make.positive(2, 3))


@samples("nn_hinge_embedding_loss")
def hinge_embedding_loss(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([[1, -1, 1], [-1, -1, 1]]))


@samples("nn_margin_ranking_loss")
def margin_ranking_loss(make: Make) -> Iterator[Call]:
    yield call(make(3), make(3), make.index([1, -1, 1]), 0.1)


@samples("multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.constant(2, 3))


domain((0.2, 0.9), "_bce")
