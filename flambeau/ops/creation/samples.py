"""Samples of creation, copies and conversions."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("polar")
def polar(make: Make) -> Iterator[Call]:
    yield call(make.positive(2, 3), make(2, 3))


@samples("fill", "fill_")
def fill(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make())
    yield call(make(2, 3), 0.5)


@samples("copy_")
def copy(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), make(3))
    yield call(make.strided(2, 3), make(2, 3))


@samples("copy_.number")
def copy_number(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 0.5)


@samples("to.dtype", "_to_copy")
def to_dtype(make: Make) -> Iterator[Call]:
    import flambeau as fl

    yield call(make(2, 3), dtype=fl.complex128)
    yield call(make.strided(2, 3), dtype=make.dtype)


@samples("to.device")
def to_device(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), "cpu")


@samples("linspace", "logspace")
def linspace(make: Make) -> Iterator[Call]:
    yield call(0.0, 1.0, 4)


@samples("resize_as_")
def resize(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3, low=None), make.constant(3, 2, low=None))


@samples("resize_")
def resize_to(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 3), [3, 2])


@samples("full_like")
def full_like(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), 0.5)


@samples("new_full")
def new_full_sized(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [2], 0.5)


@samples("new_empty", "new_zeros", "new_ones")
def new(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [2])


@samples("new_empty_strided")
def new_strided(make: Make) -> Iterator[Call]:
    yield call(make(2, 3), [2], [1])


@samples("_local_scalar_dense")
def item(make: Make) -> Iterator[Call]:
    yield call(make())


samples.without("it shares its memory with a storage that is given", "_set_storage_")
