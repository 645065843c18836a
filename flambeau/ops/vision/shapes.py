"""Shape rules of pooled boxes and deformed columns."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints
from flambeau.ops.rules import shape


@shape("torchvision::roi_align")
def roi_align(input: Geometry, rois: Geometry, pooled_height: int, pooled_width: int) -> Ints:
    return (rois.sizes[0], input.sizes[1], pooled_height, pooled_width)


@shape("torchvision::roi_pool")
def roi_pool(input: Geometry, rois: Geometry, pooled_height: int, pooled_width: int) -> list[Ints]:
    return [roi_align(input, rois, pooled_height, pooled_width)] * 2


@shape("torchvision::ps_roi_align", "torchvision::ps_roi_pool")
def by_position(input: Geometry, rois: Geometry, pooled_height: int, pooled_width: int) -> list[Ints]:
    return [(rois.sizes[0], input.sizes[1] // (pooled_height * pooled_width), pooled_height, pooled_width)] * 2


@shape(
    "torchvision::_roi_align_backward",
    "torchvision::_roi_pool_backward",
    "torchvision::_ps_roi_align_backward",
    "torchvision::_ps_roi_pool_backward",
)
def pooled_backward(batch_size: int, channels: int, height: int, width: int) -> Ints:
    return (batch_size, channels, height, width)


@shape("_deform_columns")
def deform_columns(input: Geometry, offset: Geometry, kernel_size: Ints) -> Ints:
    rows, columns = offset.sizes[2:]
    return (input.sizes[0], input.sizes[1] * kernel_size[0] * kernel_size[1], rows * columns)


@shape("_deform_columns_backward")
def deform_columns_backward(input: Geometry, offset: Geometry, mask: Geometry) -> list[Ints]:
    return [input.sizes, offset.sizes, mask.sizes]
