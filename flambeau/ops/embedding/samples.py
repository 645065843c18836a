"""Samples of embedding tables."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("one_hot")
def one_hot(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 0]), 3)


@samples("embedding")
def embedding(make: Make) -> Iterator[Call]:
    yield call(make(4, 2), make.index([[0, 2], [2, 3]]))
    yield call(make(4, 2), make.index([0, 2, 2]), 1)


@samples("nn_embedding")
def nn_embedding(make: Make) -> Iterator[Call]:
    yield call(make.index([0, 2, 2]), make(4, 2))
    yield call(make.index([0, 2, 2]), make(4, 2), padding_idx=1)


@samples("embedding_renorm_")
def embedding_renorm(make: Make) -> Iterator[Call]:
    yield call(make.constant(4, 2, low=None), make.index([0, 2]), 0.3, 2.0)


@samples("_embedding_bag", "embedding_bag")
def embedding_bag(make: Make) -> Iterator[Call]:
    yield call(make(4, 2), make.index([0, 2, 2]), make.index([0, 1]))
    yield call(make(4, 2), make.index([0, 2, 2]), make.index([0, 1]), per_sample_weights=make(3))
    yield call(make(4, 2), make.index([0, 2, 1]), make.index([0, 1]), mode=1)
    yield call(make(4, 2), make.index([0, 2, 1]), make.index([0, 1]), mode=2)


@samples("nn_embedding_bag")
def nn_embedding_bag(make: Make) -> Iterator[Call]:
    yield call(make.index([[0, 2], [1, 2]]), make(4, 2))
    yield call(make.index([0, 2, 1]), make(4, 2), make.index([0, 1]), mode="sum", per_sample_weights=make(3))
