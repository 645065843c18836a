"""Samples of sparse tensors."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("_sparse_groups")
def sparse_groups(make: Make) -> Iterator[Call]:
    yield call(make.index([[1, 0, 1], [2, 2, 2]]), [2, 3])


@samples("_sparse_mm")
def sparse_mm(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 0, 1]), make.index([0, 2, 2]), make(3), make(3, 2), 2)


@samples("_sparse_dots")
def sparse_dots(make: Make) -> Iterator[Call]:
    yield call(make.index([1, 0, 1]), make.index([0, 2, 2]), make(2, 4), make(3, 4))


samples.without(
    "a sparse tensor as argument or result; tests/sparse holds their tests",
    "_sparse_coo",
    "_sparse_compressed",
    "_sparse_values",
    "_sparse_indices",
    "_sparse_starts",
    "_sparse_is_coalesced",
    "_sparse_assign_",
    "_sparse_coalesced_",
    "_sparse_to_dense",
)
