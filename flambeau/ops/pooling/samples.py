"""Samples of pooling."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


def _pools(n: int) -> None:
    space = [5, 4, 3][:n]

    def maximum(make: Make) -> Iterator[Call]:
        yield call(make(1, 2, *space), 2)
        yield call(make(2, *space), 3, 2, 1)

    def average(make: Make) -> Iterator[Call]:
        yield call(make(1, 2, *space), 2)
        yield call(make(2, *space), 3, 2, 1, True, False)

    def adaptive(make: Make) -> Iterator[Call]:
        yield call(make(1, 2, *space), [2, 3, 1][:n])

    def unpool(make: Make) -> Iterator[Call]:
        import flambeau as fl

        count = 1
        for _ in range(n):
            count *= 2
        indices = fl.arange(count).reshape(1, 1, *([2] * n)) * 2
        yield call(make(1, 1, *([2] * n)), indices, 2, 2)

    def lp(make: Make) -> Iterator[Call]:
        yield call(make.positive(1, 2, *space), 2.0, 2)
        yield call(make.positive(1, 2, *space), 3.0, 2, 1)

    samples(f"max_pool{n}d", f"max_pool{n}d_with_indices", f"nn_max_pool{n}d")(maximum)
    samples(f"avg_pool{n}d")(average)
    adaptive_names = [f"adaptive_avg_pool{n}d", f"nn_adaptive_max_pool{n}d", f"nn_adaptive_max_pool{n}d_with_indices"]
    adaptive_names += ["adaptive_max_pool1d"] if n == 1 else [f"_adaptive_max_pool{n}d", f"nn_adaptive_avg_pool{n}d"]
    samples(*adaptive_names)(adaptive)
    samples(f"nn_max_unpool{n}d")(unpool)
    samples(f"nn_lp_pool{n}d")(lp)


for _n in (1, 2, 3):
    _pools(_n)


@samples("_fractional_max_pool2d")
def fractional_2d(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 5, 4), 2, [2, 2], make.constant(1, 2, 2))


@samples("_fractional_max_pool3d")
def fractional_3d(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 4, 4, 4), 2, [2, 2, 2], make.constant(1, 1, 3))


@samples("nn_fractional_max_pool2d", "nn_fractional_max_pool2d_with_indices")
def nn_fractional_2d(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 5, 4), 2, [2, 2], _random_samples=make.constant(1, 2, 2))


@samples("nn_fractional_max_pool3d", "nn_fractional_max_pool3d_with_indices")
def nn_fractional_3d(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 4, 4, 4), 2, [2, 2, 2], _random_samples=make.constant(1, 1, 3))


@samples("_pool_scatter")
def pool_scatter(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 2), make.index([[[0, 3], [3, 3]]]), [4], True)


@samples("_max_pool_backward")
def max_pool_backward(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 2), make.index([[[0, 2], [1, 3]]]), [1, 2, 4], [2], None, [0], [1], False)


@samples("_pool_gather")
def pool_gather(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 4), make.index([[[0, 3], [3, 3]]]), 1)


@samples("_avg_pool_backward")
def avg_pool_backward(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 2, 2), [1, 2, 4, 4], [2, 2], None, [0, 0], False, True, None)


@samples("_adaptive_avg_pool_backward")
def adaptive_avg_pool_backward(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 2, 3), [1, 2, 5, 4], 2)
