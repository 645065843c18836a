"""Samples of operators over regions of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.ops.samples import Call, Constant, Make, call, first, samples

_BOXES = [[0.0, 1.2, 0.7, 5.3, 6.4], [1.0, 0.4, 2.6, 3.7, 4.1], [0.0, 2.2, 1.6, 9.3, 9.1]]


def _boxes(make: Make) -> Any:
    import flambeau as fl

    return Constant(fl.tensor(_BOXES, dtype=make(1).dtype))


@samples("torchvision::roi_align")
def roi_align(make: Make) -> Iterator[Call]:
    yield call(make(2, 2, 7, 8), _boxes(make), 0.8, 2, 3, 2, True)
    yield call(make(2, 2, 7, 8), _boxes(make), 0.8, 3, 2, -1, False)


@samples("torchvision::_roi_align_backward")
def roi_align_backward(make: Make) -> Iterator[Call]:
    yield call(make(3, 2, 2, 3), _boxes(make), 0.8, 2, 3, 2, 2, 7, 8, 2, True)


@samples("torchvision::roi_pool")
def roi_pool(make: Make) -> Iterator[Call]:
    yield call(make(2, 2, 7, 8), _boxes(make), 0.8, 2, 3).then(first)


@samples("torchvision::_roi_pool_backward")
def roi_pool_backward(make: Make) -> Iterator[Call]:
    import flambeau as fl

    places = Constant(fl.arange(36, dtype=fl.int32).reshape(3, 2, 2, 3))
    yield call(make(3, 2, 2, 3), _boxes(make), places, 0.8, 2, 3, 2, 2, 7, 8)


@samples("torchvision::ps_roi_align")
def ps_roi_align(make: Make) -> Iterator[Call]:
    yield call(make(2, 12, 7, 8), _boxes(make), 0.8, 2, 3, 2).then(first)


@samples("torchvision::ps_roi_pool")
def ps_roi_pool(make: Make) -> Iterator[Call]:
    yield call(make(2, 12, 7, 8), _boxes(make), 0.8, 2, 3).then(first)


def _mapping() -> Any:
    import flambeau as fl

    return Constant(fl.arange(12, dtype=fl.int32).reshape(1, 2, 2, 3).expand(3, 2, 2, 3).contiguous())


@samples("torchvision::_ps_roi_align_backward")
def ps_roi_align_backward(make: Make) -> Iterator[Call]:
    yield call(make(3, 2, 2, 3), _boxes(make), _mapping(), 0.8, 2, 3, 2, 2, 12, 7, 8)


@samples("torchvision::_ps_roi_pool_backward")
def ps_roi_pool_backward(make: Make) -> Iterator[Call]:
    yield call(make(3, 2, 2, 3), _boxes(make), _mapping(), 0.8, 2, 3, 2, 12, 7, 8)


@samples("torchvision::nms", "torchvision::qnms")
def nms(make: Make) -> Iterator[Call]:
    import flambeau as fl

    corners = fl.tensor(_BOXES, dtype=make(1).dtype)[:, 1:]
    yield call(Constant(corners), make.constant(3), 0.1)


@samples("torchvision::qroi_align")
def qroi_align(make: Make) -> Iterator[Call]:
    import flambeau as fl

    image = Constant((fl.arange(2 * 2 * 7 * 8) % 100).to(fl.uint8).reshape(2, 2, 7, 8))
    boxes = Constant((fl.tensor(_BOXES) * 10).to(fl.uint8))
    yield call(image, boxes, 0.5, 3, 0.1, 0, 1.0, 2, 2, 2, False)


@samples("torchvision::box_iou_rotated")
def box_iou_rotated(make: Make) -> Iterator[Call]:
    import flambeau as fl

    rows = [[2.0, 2.0, 2.0, 1.0, 30.0], [2.5, 2.2, 1.5, 2.0, -20.0]]
    boxes = Constant(fl.tensor(rows, dtype=make(1).dtype))
    yield call(boxes, boxes)


_WINDOW = ([2, 3], [2, 1], [1, 1], [1, 2], True)


def _deformed(make: Make) -> Any:
    return make(2, 4, 5, 6), make.constant(2, 24, 3, 4, low=None), make(2, 12, 3, 4)


@samples("_deform_columns")
def deform_columns(make: Make) -> Iterator[Call]:
    yield call(*_deformed(make), *_WINDOW)


@samples("_deform_columns_backward")
def deform_columns_backward(make: Make) -> Iterator[Call]:
    yield call(make.constant(2, 24, 12, low=None), *(Constant(t) if hasattr(t, "shape") else t for t in _deformed(make)), *_WINDOW)  # fmt: skip


@samples("torchvision::deform_conv2d")
def deform_conv2d(make: Make) -> Iterator[Call]:
    image, offset, mask = _deformed(make)
    yield call(image, make(2, 2, 2, 3), offset, mask, make(2), 2, 1, 1, 1, 1, 2, 2, 2, True)


@samples("torchvision::_deform_conv2d_backward")
def deform_conv2d_backward(make: Make) -> Iterator[Call]:
    image, offset, mask = _deformed(make)
    yield call(make(2, 2, 3, 4), image, make(2, 2, 2, 3), offset, mask, make(2), 2, 1, 1, 1, 1, 2, 2, 2, True)
