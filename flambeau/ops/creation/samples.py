"""Samples of creation, copies and conversions."""

from __future__ import annotations

from flambeau.ops.samples import call, samples


@samples("polar")
def polar(make):
    yield call(make.positive(2, 3), make(2, 3))


@samples("fill", "fill_")
def fill(make):
    yield call(make(2, 3), make())
    yield call(make(2, 3), 0.5)


@samples("copy_")
def copy(make):
    yield call(make(2, 3), make(3))
    yield call(make.strided(2, 3), make(2, 3))


@samples("copy_.number")
def copy_number(make):
    yield call(make(2, 3), 0.5)


@samples("to.dtype", "_to_copy")
def to_dtype(make):
    import flambeau as fl

    yield call(make(2, 3), dtype=fl.complex128)
    yield call(make.strided(2, 3), dtype=make.dtype)


@samples("to.device")
def to_device(make):
    yield call(make(2, 3), "cpu")


@samples("linspace", "logspace")
def linspace(make):
    yield call(0.0, 1.0, 4)


@samples("resize_as_")
def resize(make):
    yield call(make.constant(2, 3, low=None), make.constant(3, 2, low=None))


@samples("resize_")
def resize_to(make):
    yield call(make.constant(2, 3), [3, 2])


@samples("full_like")
def full_like(make):
    yield call(make(2, 3), 0.5)


@samples("new_full")
def new_full_sized(make):
    yield call(make(2, 3), [2], 0.5)


@samples("new_empty", "new_zeros", "new_ones")
def new(make):
    yield call(make(2, 3), [2])


@samples("new_empty_strided")
def new_strided(make):
    yield call(make(2, 3), [2], [1])


@samples("_local_scalar_dense")
def item(make):
    yield call(make())


samples.without("it shares its memory with a storage that is given", "_set_storage_")
