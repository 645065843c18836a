"""Samples of indexing, scatter, sorting and searching."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("nonzero_static")
def nonzero_static(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), size=4)


@samples("index.Tensor")
def index(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), [make.index([0, 0, 2])])
    yield call(make.strided(3, 2), [None, make.index([[1, 0], [0, 0]])])
    yield call(make(3, 2), [make.mask([True, False, True]), make.index([1, 0])])
    yield call(make(3, 2), [make.index([])])


@samples("index_put")
def index_put(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), [make.index([0, 2])], make(2, 2))
    yield call(make(3, 2), [make.index([0, 0, 2])], make(2), True)


@samples("masked_select")
def masked_select(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.mask([True, False, True]))


@samples("masked_scatter")
def masked_scatter(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.mask([[True, False, True], [False, False, True]]), make(4))


@samples("index_select")
def index_select(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, make.index([2, 0, 0]))
    yield call(make.strided(2, 3), 0, make.index([1]))


@samples("index_add", "index_copy")
def index_add(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), 0, make.index([2, 0]), make(2, 2))
    yield call(make.strided(2, 3), 1, make.index([1]), make(2, 1))


@samples("index_fill")
def index_fill(make: Make) -> Iterator[Call]:
    yield call(make(3, 2), 0, make.index([2, 0]), 0.5)
    yield call(make(3, 2), 0, make.index([1]), make())


@samples("index_reduce")
def index_reduce(make: Make) -> Iterator[Call]:
    for reduce in ("prod", "mean") if make.dtype.is_complex else ("prod", "mean", "amax", "amin"):
        yield call(make(3, 2), 0, make.index([2, 0, 0]), make(3, 2), reduce)
    yield call(make(3, 2), 0, make.index([2, 0, 0]), make(3, 2), "mean", include_self=False)


@samples("take")
def take(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([[0, 5], [5, 1]]))


@samples("put")
def put(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([0, 5]), make(2))
    yield call(make(2, 3), make.index([5, 5]), make(2), True)


@samples("take_along_dim")
def take_along_dim(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make.index([[0, 2], [1, 1]]), 1)
    yield call(make(2, 3), make.index([5, 0]))


@samples("gather")
def gather(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, make.index([[0, 0], [2, 1]]))
    yield call(make.strided(3, 2), 0, make.index([[0, 1]]))


@samples("scatter.src", "scatter_add")
def scatter(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, make.index([[0, 2], [1, 0]]), make(2, 2))
    yield call(make.strided(3, 2), 0, make.index([[2, 0]]), make(1, 2))


@samples("scatter.value")
def scatter_value(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1, make.index([[0, 2], [1, 0]]), 0.5)


@samples("scatter.reduce")
def scatter_reduce_string(make: Make) -> Iterator[Call]:
    yield call(
        make.constant(2, 3, low=None), 1, make.index([[0, 2], [1, 0]]), make.constant(2, 2, low=None), reduce="multiply"
    )


@samples("scatter.value_reduce")
def scatter_reduce_value(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3, low=None), 1, make.index([[0, 2], [1, 0]]), 0.5, reduce="add")


@samples("scatter_reduce.two")
def scatter_reduce(make: Make) -> Iterator[Call]:
    for reduce in ("sum", "prod", "mean") if make.dtype.is_complex else ("sum", "prod", "mean", "amax", "amin"):
        yield call(make(3), 0, make.index([0, 0, 2]), make(3), reduce)
    yield call(make(3), 0, make.index([0, 0, 2]), make(3), "mean", include_self=False)


@samples("select_scatter")
def select_scatter(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(2), 1, 2)


@samples("slice_scatter")
def slice_scatter(make: Make) -> Iterator[Call]:
    yield call(make(2, 5), make(2, 2), 1, 1, 5, 2)


@samples("diagonal_scatter")
def diagonal_scatter(make: Make) -> Iterator[Call]:
    yield call(make(3, 3), make(2), 1)


@samples("as_strided_scatter")
def as_strided_scatter(make: Make) -> Iterator[Call]:
    yield call(make(6), make(2, 2), [2, 2], [1, 2], 1)


@samples("sort", "msort", "argsort")
def sort(make: Make) -> Iterator[Call]:
    yield call(make(2, 4))
    yield call(make.strided(3, 2))


@samples("sort.stable", "argsort.stable")
def sort_stable(make: Make) -> Iterator[Call]:
    yield call(make(2, 4), stable=True, dim=0, descending=True)


@samples("topk", "kthvalue")
def topk(make: Make) -> Iterator[Call]:
    yield call(make(2, 4), 2)


@samples("median.dim", "nanmedian.dim", "mode")
def median(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 1)
    yield call(make.strided(3, 2), 0, True)


@samples("median", "nanmedian")
def of_all(make: Make) -> Iterator[Call]:
    yield call(make(2, 3))
