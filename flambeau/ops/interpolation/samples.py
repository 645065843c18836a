"""Samples of resizing and grid sampling."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Make, call, samples


@samples("_interpolate")
def interpolate_kernel(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 3), [5], "linear", False, None, False)
    yield call(make(1, 1, 2, 3), [3, 4], "cubic", True, None, False)
    yield call(make(2, 1, 5, 4), [2, 7], "linear", False, None, True)
    yield call(make(1, 2, 7), [3], "nearest-exact", False, None, False)


@samples("_interpolate_backward")
def interpolate_backward(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 5), [1, 1, 3], "linear", False, None, False)
    yield call(make(1, 2, 3, 4), [1, 2, 5, 2], "cubic", False, None, True)


@samples("nn_interpolate")
def interpolate(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 3), 5)
    yield call(make(1, 1, 3), scale_factor=2.0, mode="linear", align_corners=False)
    yield call(make(1, 1, 2, 3), [3, 5], mode="bilinear", align_corners=True)
    yield call(make(1, 1, 4, 4), [3, 2], mode="bicubic", antialias=True)
    yield call(make(1, 1, 3, 5), scale_factor=(1.7, 0.6), mode="nearest")
    yield call(make(1, 1, 3, 5), scale_factor=(1.7, 0.6), mode="bilinear")
    yield call(make(1, 1, 2, 2, 2), [3, 1, 2], mode="trilinear")
    yield call(make(1, 1, 4), [2], mode="area")


@samples("nn_upsample", "nn_upsample_nearest", "nn_upsample_bilinear")
def upsample(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 2, 3), [4, 3])


@samples("grid_sampler", "grid_sampler_2d")
def grid_sampler_2d(make: Make) -> Iterator[Call]:
    for mode in (0, 2):
        for padding, align in ((0, False), (1, True), (2, False), (2, True)):
            yield call(make(1, 2, 3, 3), make(1, 2, 2, 2), mode, padding, align)
    yield call(make(1, 2, 3, 3), make.constant(1, 2, 2, 2), 1, 0, False)


@samples("grid_sampler_3d")
def grid_sampler_3d(make: Make) -> Iterator[Call]:
    yield call(make(1, 1, 3, 3, 2), make(1, 2, 1, 2, 3), 0, 1, False)


@samples("_grid_sampler_backward")
def grid_sampler_backward(make: Make) -> Iterator[Call]:
    yield call(
        make.constant(1, 2, 2, 2, low=None),
        make.constant(1, 2, 3, 3, low=None),
        make.constant(1, 2, 2, 2, low=None),
        0,
        0,
        False,
    )


@samples("nn_grid_sample")
def grid_sample(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 3, 3), make(1, 2, 2, 2), align_corners=False)


@samples("affine_grid_generator")
def affine_grid_generator(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 3), [1, 1, 2, 3], False)


@samples("nn_affine_grid")
def affine_grid(make: Make) -> Iterator[Call]:
    yield call(make(1, 2, 3), [1, 1, 2, 3], align_corners=True)
    yield call(make(1, 3, 4), [1, 1, 2, 2, 2], align_corners=False)
