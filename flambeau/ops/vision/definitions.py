"""Pooling of boxes and deformed columns in terms of other operators.

Interpolation and means over windows are separable: a bin of a box is `rows @ image @ columns`, where `rows` holds the weight
of every row of the image for every row of bins, and `columns` the same across.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition


def _bin_size(length: Any, bins: int) -> Any:
    """A true division: where a device multiplies by the inverse of a number, whole sizes would not stay whole."""
    return length / fl.full_like(length, bins)


def _sample_weights(start: Any, length: Any, size: int, bins: int, ratio: int) -> Any:
    """(boxes, bins, size): what each pixel contributes to the mean of the samples of a bin, along one axis."""
    bin_size = _bin_size(length, bins)
    counts = fl.full_like(length, ratio) if ratio > 0 else bin_size.ceil().clamp(min=0)  # samples of a bin, by box
    most = ratio if ratio > 0 else int(counts.max().item()) if counts.numel() else 0
    options = {"dtype": start.dtype, "device": start.device}
    bin_index = fl.arange(bins, **options).reshape(1, -1, 1)
    sample = fl.arange(most, **options).reshape(1, 1, -1)
    start, bin_size, counts = (x.reshape(-1, 1, 1) for x in (start, bin_size, counts))
    at = start + bin_index * bin_size + (sample + 0.5) * bin_size / counts.clamp(min=1)
    counted = ((at >= -1) & (at <= size) & (sample < counts)).to(start.dtype)
    at = at.clamp(0, size - 1)
    pixels = fl.arange(size, **options)
    near = (1 - (at[..., None] - pixels).abs()).clamp(min=0)
    return (near * counted[..., None]).sum(2) / counts.clamp(min=1)


def _edges(start: Any, length: Any, size: int, bins: int) -> tuple[Any, Any]:
    """First and last pixel of whole-pixel bins, (boxes, bins, 1), clipped to the image."""
    index = fl.arange(bins, dtype=start.dtype, device=start.device)
    bin_size = _bin_size(length, bins)[:, None]
    low = ((index * bin_size).floor() + start[:, None]).clamp(0, size)
    high = (((index + 1) * bin_size).ceil() + start[:, None]).clamp(0, size)
    return low[..., None], high[..., None]


def _rounded(x: Any) -> Any:
    """Halves away from zero."""
    return (x.abs() + 0.5).floor() * x.sign()


def _box_weights(
    rois: Any, scale: float, bins: tuple[int, int], sizes: tuple[int, int], ratio: int, aligned: bool, sampled: bool
) -> list[Any]:
    """Weights along rows and columns: of interpolated samples, or of the mean over whole pixels. Places in half precision
    are computed in float32, as the kernels do."""
    weights, dtype = [], rois.dtype
    rois = rois.to(fl.promote_types(dtype, fl.float32))
    for axis, (count, size) in enumerate(zip(bins, sizes)):
        low, high = rois[:, 2 - axis] * scale, rois[:, 4 - axis] * scale
        if not sampled:
            low, high = _rounded(low), _rounded(high)
            first, last = _edges(low, (high - low).clamp(min=1), size - 1, count)
            pixels = fl.arange(size, dtype=low.dtype, device=low.device)
            inside = ((pixels >= first) & (pixels < last)).to(low.dtype)
            weights.append(inside / inside.sum(-1, keepdim=True).clamp(min=1))
            continue
        length = high - low if aligned else (high - low).clamp(min=1)
        weights.append(_sample_weights(low - 0.5 if aligned else low, length, size, count, ratio))
    return [weight.to(dtype) for weight in weights]


def _pooled(input: Any, rois: Any, weights: list[Any], by_position: bool) -> Any:
    rows, columns = weights
    total: Any = None
    for image in range(input.shape[0]):
        own = (rois[:, 0] == image).to(input.dtype).reshape(-1, 1, 1)
        if by_position:
            planes = input[image].reshape(-1, rows.shape[1], columns.shape[1], *input.shape[2:])
            part = fl.einsum("nih,cijhw,njw->ncij", [rows * own, planes, columns])
        else:
            part = fl.einsum("nih,chw,njw->ncij", [rows * own, input[image], columns])
        total = part if total is None else total + part
    return total


def _pooled_backward(grad: Any, rois: Any, weights: list[Any], sizes: list[int], by_position: bool) -> Any:
    rows, columns = weights
    images = []
    for image in range(sizes[0]):
        own = (rois[:, 0] == image).to(grad.dtype).reshape(-1, 1, 1)
        formula = "nih,ncij,njw->cijhw" if by_position else "nih,ncij,njw->chw"
        images.append(fl.einsum(formula, [rows * own, grad, columns]).reshape(sizes[1:]))
    return fl.stack(images)


def _channel_mapping(input: Any, rois: Any, height: int, width: int) -> Any:
    channels = input.shape[1] // (height * width)
    mapping = fl.arange(input.shape[1], dtype=fl.int32, device=input.device).reshape(1, channels, height, width)
    return mapping.expand(rois.shape[0], -1, -1, -1).contiguous()


@definition("torchvision::roi_align")
def roi_align(input: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int, aligned: bool) -> Any:
    weights = _box_weights(rois, scale, (height, width), input.shape[2:], sampling_ratio, aligned, True)
    return _pooled(input, rois, weights, False)


@definition("torchvision::_roi_align_backward")
def roi_align_backward(
    grad: Any, rois: Any, scale: float, height: int, width: int, batch: int, channels: int, rows: int, columns: int,
    sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    weights = _box_weights(rois, scale, (height, width), (rows, columns), sampling_ratio, aligned, True)
    return _pooled_backward(grad, rois, weights, [batch, channels, rows, columns], False)


@definition("torchvision::ps_roi_align")
def ps_roi_align(input: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int) -> Any:
    weights = _box_weights(rois, scale, (height, width), input.shape[2:], sampling_ratio, True, True)
    return _pooled(input, rois, weights, True), _channel_mapping(input, rois, height, width)


@definition("torchvision::_ps_roi_align_backward")
def ps_roi_align_backward(
    grad: Any, rois: Any, mapping: Any, scale: float, height: int, width: int, sampling_ratio: int, batch: int,
    channels: int, rows: int, columns: int,
) -> Any:  # fmt: skip
    weights = _box_weights(rois, scale, (height, width), (rows, columns), sampling_ratio, True, True)
    return _pooled_backward(grad, rois, weights, [batch, channels, rows, columns], True)


@definition("torchvision::ps_roi_pool")
def ps_roi_pool(input: Any, rois: Any, scale: float, height: int, width: int) -> Any:
    weights = _box_weights(rois, scale, (height, width), input.shape[2:], 0, False, False)
    return _pooled(input, rois, weights, True), _channel_mapping(input, rois, height, width)


@definition("torchvision::_ps_roi_pool_backward")
def ps_roi_pool_backward(
    grad: Any, rois: Any, mapping: Any, scale: float, height: int, width: int, batch: int, channels: int, rows: int,
    columns: int,
) -> Any:  # fmt: skip
    weights = _box_weights(rois, scale, (height, width), (rows, columns), 0, False, False)
    return _pooled_backward(grad, rois, weights, [batch, channels, rows, columns], True)


@definition("torchvision::roi_pool")
def roi_pool(input: Any, rois: Any, scale: float, height: int, width: int) -> Any:
    """Bin by bin, each box with an image of its own in which everything outside the bin is the smallest number."""
    lowest = fl.finfo(input.dtype).min
    images = input[rois[:, 0].long()]
    masks = []
    for axis, (count, size) in enumerate(zip((height, width), input.shape[2:])):
        low, high = (_rounded(rois[:, k - axis] * scale) for k in (2, 4))
        first, last = _edges(low, (high - low + 1).clamp(min=1), size, count)
        pixels = fl.arange(size, dtype=rois.dtype, device=rois.device)
        masks.append((pixels >= first) & (pixels < last))
    values, places = [], []
    for i in range(height):
        for j in range(width):
            inside = (masks[0][:, i, :, None] & masks[1][:, j, None, :])[:, None]
            plane = fl.where(inside, images, fl.full_like(images, lowest)).flatten(2)
            most = plane.max(-1)
            exists = inside.flatten(1).any(-1)[:, None]
            values.append(fl.where(exists, most.values, fl.zeros_like(most.values)))
            places.append(fl.where(exists, most.indices, fl.full_like(most.indices, -1)))
    shape = (rois.shape[0], input.shape[1], height, width)
    return fl.stack(values, -1).reshape(shape), fl.stack(places, -1).reshape(shape).to(fl.int32)


@definition("torchvision::_roi_pool_backward")
def roi_pool_backward(
    grad: Any, rois: Any, argmax: Any, scale: float, height: int, width: int, batch: int, channels: int, rows: int,
    columns: int,
) -> Any:  # fmt: skip
    places = argmax.flatten(2).long()
    image = rois[:, 0].long().reshape(-1, 1, 1) * channels + fl.arange(channels, device=grad.device).reshape(1, -1, 1)
    target = (image * (rows * columns) + places.clamp(min=0)).flatten()
    values = fl.where(places >= 0, grad.flatten(2), fl.zeros_like(grad.flatten(2))).flatten()
    flat = fl.zeros(batch * channels * rows * columns, dtype=grad.dtype, device=grad.device)
    return flat.scatter_add(0, target, values).reshape(batch, channels, rows, columns)


@definition("torchvision::nms")
def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Which boxes survive depends on one after the other, so the CPU decides."""
    return fl.ops.torchvision.nms(dets.cpu(), scores.cpu(), iou_threshold).to(dets.device)


def _places(
    input: Any, offset: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[Any, Any, tuple[int, ...]]:
    """The image of each group of channels, where it is sampled in the coordinates of a grid, and the sizes
    (batch, groups, channels of a group, taps, rows, columns)."""
    batch, channels = input.shape[:2]
    rows, columns = offset.shape[2:]
    taps = kernel_size[0] * kernel_size[1]
    groups = offset.shape[1] // (2 * taps)
    shifts = offset.reshape(batch * groups, *kernel_size, 2, rows, columns)
    options = {"dtype": input.dtype, "device": input.device}
    grid = []
    for axis, (count, size) in enumerate(zip((rows, columns), input.shape[2:])):
        window = fl.arange(kernel_size[axis], **options) * dilation[axis] - padding[axis]
        place = fl.arange(count, **options) * stride[axis]
        shape = [1] * 5
        shape[1 + axis] = kernel_size[axis]
        place_shape = [1] * 5
        place_shape[3 + axis] = count
        at = shifts[:, :, :, axis] + window.reshape(shape) + place.reshape(place_shape)
        grid.append((2 * at + 1) / size - 1)
    points = fl.stack(grid[::-1], -1).reshape(batch * groups, taps * rows, columns, 2)
    images = input.reshape(batch * groups, channels // groups, *input.shape[2:])
    return images, points, (batch, groups, channels // groups, taps, rows, columns)


@definition("_deform_columns")
def deform_columns(
    input: Any, offset: Any, mask: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, use_mask: bool
) -> Any:
    """Bilinear samples at shifted places, as a grid over the image of each group of channels."""
    images, points, sizes = _places(input, offset, kernel_size, stride, padding, dilation)
    batch, groups, channels, taps, rows, columns = sizes
    samples = fl.grid_sampler_2d(images, points, 0, 0, False)
    samples = samples.reshape(batch, groups, channels, taps, rows * columns)
    if use_mask:
        samples = samples * mask.reshape(batch, groups, 1, taps, rows * columns)
    return samples.reshape(batch, groups * channels * taps, rows * columns)


@definition("_deform_columns_backward")
def deform_columns_backward(
    grad: Any,
    input: Any,
    offset: Any,
    mask: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    use_mask: bool,
) -> Any:
    """Through the derivative of the samples."""
    images, points, sizes = _places(input, offset, kernel_size, stride, padding, dilation)
    batch, groups, channels, taps, rows, columns = sizes
    grad = grad.reshape(batch, groups, channels, taps, rows * columns)
    grad_mask = fl.zeros_like(mask)
    if use_mask:
        samples = fl.grid_sampler_2d(images, points, 0, 0, False).reshape(grad.shape)
        grad_mask = (grad * samples).sum(2).reshape(mask.shape)
        grad = grad * mask.reshape(batch, groups, 1, taps, rows * columns)
    grad = grad.reshape(batch * groups, channels, taps * rows, columns)
    grad_images, grad_points = fl._ops._grid_sampler_backward(grad, images, points, 0, 0, False)
    scales = [2 / size for size in input.shape[2:]]  # of pixels to the coordinates of a grid
    shifts = fl.stack([grad_points[..., 1 - axis] * scale for axis, scale in enumerate(scales)], 1)
    shifts = shifts.reshape(batch * groups, 2, *kernel_size, rows, columns).permute(0, 2, 3, 1, 4, 5)
    return grad_images.reshape(input.shape), shifts.reshape(offset.shape), grad_mask
