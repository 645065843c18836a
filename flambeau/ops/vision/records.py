"""The compiled operators of torchvision, under its names (`ops.torchvision`).

Pooled boxes and suppression are native; a deformable convolution is the product of the weight with columns that are
sampled at shifted places, of which only the sampling is native. Rows of boxes are (image, x1, y1, x2, y2).
"""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, tag, vjp
from flambeau.ops.retrace import retrace

_BOXES = "Tensor rois, float spatial_scale, int pooled_height, int pooled_width"
_SIZES = "int batch_size, int channels, int height, int width"

native("torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
native(f"torchvision::roi_align(Tensor input, {_BOXES}, int sampling_ratio, bool aligned) -> Tensor")
native(f"torchvision::_roi_align_backward(Tensor grad, {_BOXES}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor")
native(f"torchvision::roi_pool(Tensor input, {_BOXES}) -> (Tensor, Tensor)")
native(f"torchvision::_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BOXES[13:]}, {_SIZES}) -> Tensor")
native(f"torchvision::ps_roi_align(Tensor input, {_BOXES}, int sampling_ratio) -> (Tensor, Tensor)")
native(
    f"torchvision::_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BOXES[13:]}, "
    f"int sampling_ratio, {_SIZES}) -> Tensor"
)
native(f"torchvision::ps_roi_pool(Tensor input, {_BOXES}) -> (Tensor, Tensor)")
native(
    f"torchvision::_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BOXES[13:]}, {_SIZES}) "
    "-> Tensor"
)
_WINDOW = "int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool use_mask"
native(f"_deform_columns(Tensor input, Tensor offset, Tensor mask, {_WINDOW}) -> Tensor")
native(f"_deform_columns_backward(Tensor grad, Tensor input, Tensor offset, Tensor mask, {_WINDOW}) -> (Tensor, Tensor, Tensor)")  # fmt: skip


# ---------------------------------------------------------------- derivatives
# Pooling is linear in the image, so the derivative of its gradient is the pooling again.


@vjp("torchvision::roi_align")
def roi_align_vjp(
    g: fl.Tensor,
    input_sizes: fl.Size,
    rois: fl.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> tuple[fl.Tensor | None, ...]:
    box = (rois, spatial_scale, pooled_height, pooled_width)
    return fl.ops.torchvision._roi_align_backward(g, *box, *input_sizes, sampling_ratio, aligned), None


@vjp("torchvision::_roi_align_backward")
def roi_align_backward_vjp(
    g: fl.Tensor,
    rois: fl.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> tuple[fl.Tensor | None, ...]:
    return fl.ops.torchvision.roi_align(
        g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
    ), None


@vjp("torchvision::ps_roi_align")
def ps_roi_align_vjp(
    g0: fl.Tensor,
    input_sizes: fl.Size,
    rois: fl.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    out1: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    box = (rois, out1, spatial_scale, pooled_height, pooled_width)
    return fl.ops.torchvision._ps_roi_align_backward(g0, *box, sampling_ratio, *input_sizes), None


@vjp("torchvision::_ps_roi_align_backward")
def ps_roi_align_backward_vjp(
    g: fl.Tensor, rois: fl.Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[fl.Tensor | None, ...]:
    pooled, _ = fl.ops.torchvision.ps_roi_align(g, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio)
    return pooled, None, None


@vjp("torchvision::ps_roi_pool")
def ps_roi_pool_vjp(
    g0: fl.Tensor,
    input_sizes: fl.Size,
    rois: fl.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    out1: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    box = (rois, out1, spatial_scale, pooled_height, pooled_width)
    return fl.ops.torchvision._ps_roi_pool_backward(g0, *box, *input_sizes), None


@vjp("torchvision::_ps_roi_pool_backward")
def ps_roi_pool_backward_vjp(
    g: fl.Tensor, rois: fl.Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[fl.Tensor | None, ...]:
    return fl.ops.torchvision.ps_roi_pool(g, rois, spatial_scale, pooled_height, pooled_width)[0], None, None


@vjp("torchvision::roi_pool")
def roi_pool_vjp(
    g0: fl.Tensor,
    input_sizes: fl.Size,
    rois: fl.Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    out1: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    box = (rois, out1, spatial_scale, pooled_height, pooled_width)
    return fl.ops.torchvision._roi_pool_backward(g0, *box, *input_sizes), None


@vjp("torchvision::_roi_pool_backward")
def roi_pool_backward_vjp(g: fl.Tensor, rois: fl.Tensor, argmax: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    images = g.flatten(2)[rois[:, 0].long()]
    places = argmax.flatten(2).long()
    chosen = images.gather(2, places.clamp(min=0)) * (places >= 0).to(g.dtype)
    return chosen.reshape(argmax.shape), None, None


@vjp("_deform_columns")
def deform_columns_vjp(
    g: fl.Tensor,
    input: fl.Tensor,
    offset: fl.Tensor,
    mask: fl.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    use_mask: bool,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    window = (kernel_size, stride, padding, dilation, use_mask)
    if fl.is_grad_enabled():
        from flambeau.ops.vision.definitions import deform_columns

        return retrace(lambda *tensors: deform_columns(*tensors, *window), (input, offset, mask), needs, g)  # type: ignore[call-arg]
    grads = fl._ops._deform_columns_backward(g, input, offset, mask, *window)
    return tuple(grad if needed else None for grad, needed in zip(grads, needs))


# ---------------------------------------------------------------- deformable convolution


@composite("torchvision::deform_conv2d")
def deform_conv2d(
    input: fl.Tensor,
    weight: fl.Tensor,
    offset: fl.Tensor,
    mask: fl.Tensor,
    bias: fl.Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> fl.Tensor:
    window = [list(weight.shape[2:]), [stride_h, stride_w], [pad_h, pad_w], [dilation_h, dilation_w]]
    columns = fl._ops._deform_columns(input, offset, mask, *window, use_mask)
    batch, out_channels = input.shape[0], weight.shape[0]
    depth = columns.shape[1] // groups
    products = weight.reshape(groups, out_channels // groups, depth) @ columns.reshape(
        batch, groups, depth, columns.shape[-1]
    )
    return products.reshape(batch, out_channels, *offset.shape[2:]) + bias.reshape(1, -1, 1, 1)


@composite("torchvision::_deform_conv2d_backward")
def deform_conv2d_backward(
    grad: fl.Tensor,
    input: fl.Tensor,
    weight: fl.Tensor,
    offset: fl.Tensor,
    mask: fl.Tensor,
    bias: fl.Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor, fl.Tensor, fl.Tensor]:
    window = (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, offset_groups, use_mask)
    tensors = (input, weight, offset, mask, bias)
    if grad.device != input.device:
        raise RuntimeError(f"[deform_conv2d] expected tensors on one device, got {grad.device} and {input.device}")
    grads = retrace(lambda *args: deform_conv2d(*args, *window), tensors, (True,) * len(tensors), grad)
    return tuple(fl.zeros_like(x) if g is None else g for g, x in zip(grads, tensors))  # type: ignore[return-value]


# ---------------------------------------------------------------- quantized and rotated boxes


@composite("torchvision::qnms")
def qnms(dets: fl.Tensor, scores: fl.Tensor, iou_threshold: float) -> fl.Tensor:
    """Boxes as integers of one scale, which cancels in the overlaps."""
    return fl.ops.torchvision.nms(dets.to(fl.float32), scores.to(fl.float32), iou_threshold)


@composite("torchvision::qroi_align")
def qroi_align(
    input: fl.Tensor,
    rois: fl.Tensor,
    input_scale: float,
    input_zero_point: int,
    rois_scale: float,
    rois_zero_point: int,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> fl.Tensor:
    """Of integers with a scale and a zero point: pooled as numbers and rounded to the same grid."""
    values = (input.to(fl.float32) - input_zero_point) * input_scale
    boxes = (rois.to(fl.float32) - rois_zero_point) * rois_scale
    pooled = fl.ops.torchvision.roi_align(
        values, boxes, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
    )
    limits = fl.iinfo(input.dtype)
    return (pooled / input_scale).round().add(input_zero_point).clamp(limits.min, limits.max).to(input.dtype)


def _rotated_corners(boxes: fl.Tensor) -> fl.Tensor:
    """Corners (boxes, 4, 2) of rows (centre x, centre y, width, height, angle in degrees)."""
    angle = fl.deg2rad(boxes[:, 4:5])
    across, down = boxes[:, 2:3] / 2, boxes[:, 3:4] / 2
    signs_x, signs_y = fl.tensor([[1.0, -1, -1, 1], [1, 1, -1, -1]], dtype=boxes.dtype, device=boxes.device)
    x, y = signs_x * across, signs_y * down
    cosine, sine = fl.cos(angle), fl.sin(angle)
    return fl.stack((boxes[:, 0:1] + cosine * x + sine * y, boxes[:, 1:2] - sine * x + cosine * y), -1)


def _cross(a: fl.Tensor, b: fl.Tensor) -> fl.Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


_ROUNDING = 1e-9


def _inside(points: fl.Tensor, corners: fl.Tensor) -> fl.Tensor:
    """Whether points (..., p, 2) lie in rectangles (..., 4, 2)."""
    origin = corners[..., 0:1, :]
    inside = fl.ones(points.shape[:-1], dtype=fl.bool, device=points.device)
    for k in (1, 3):
        side = corners[..., k : k + 1, :] - origin
        part, whole = ((points - origin) * side).sum(-1), side.square().sum(-1)
        # A corner of one box may lie on a side of the other; rounding must not put it outside.
        inside = inside & (part >= whole * -_ROUNDING) & (part <= whole * (1 + _ROUNDING))
    return inside


@composite("torchvision::box_iou_rotated")
def box_iou_rotated(boxes1: fl.Tensor, boxes2: fl.Tensor) -> fl.Tensor:
    """Overlap of each pair: the polygon of corners inside the other box and crossings of sides, its area by angles."""
    boxes1, boxes2 = boxes1.to(fl.float64), boxes2.to(fl.float64)
    first, second = _rotated_corners(boxes1)[:, None], _rotated_corners(boxes2)[None]
    shape = (boxes1.shape[0], boxes2.shape[0])
    first, second = (c.expand(*shape, 4, 2) for c in (first, second))
    starts, sides = first[..., :, None, :], (first.roll(-1, -2) - first)[..., :, None, :]
    others, other_sides = second[..., None, :, :], (second.roll(-1, -2) - second)[..., None, :, :]
    turn = _cross(sides, other_sides)
    parallel = turn.abs() < 1e-14
    turn = fl.where(parallel, fl.ones_like(turn), turn)
    along, across = _cross(others - starts, other_sides) / turn, _cross(others - starts, sides) / turn
    crossing = ~parallel & (along >= 0) & (along <= 1) & (across >= 0) & (across <= 1)
    points = fl.cat(((starts + along[..., None] * sides).flatten(-3, -2), first, second), -2)
    used = fl.cat((crossing.flatten(-2), _inside(first, second), _inside(second, first)), -1)
    count = used.sum(-1, keepdim=True)
    centre = (points * used[..., None]).sum(-2, keepdim=True) / count.clamp(min=1)[..., None]
    around = fl.where(used[..., None], points - centre, fl.zeros_like(points))
    order = fl.where(used, fl.atan2(around[..., 1], around[..., 0]), fl.full_like(around[..., 0], 4.0)).argsort(-1)
    ring = around.gather(-2, order[..., None].expand(around.shape))
    # Points that are not used follow the last one and lie in the centre, where they span no area.
    last = ring.gather(-2, (count - 1).clamp(min=0)[..., None].expand(*shape, 1, 2))
    shared = (_cross(ring, ring.roll(-1, -2)).sum(-1) + _cross(last, ring[..., :1, :])[..., 0]) / 2
    full = count[..., 0] == used.shape[-1]
    shared = fl.where(full, _cross(ring, ring.roll(-1, -2)).sum(-1) / 2, shared).clamp(min=0)
    areas = (boxes1[:, 2] * boxes1[:, 3])[:, None], (boxes2[:, 2] * boxes2[:, 3])[None]
    exists = (areas[0] > 1e-14) & (areas[1] > 1e-14)
    return (shared / (areas[0] + areas[1] - shared)).where(exists, fl.zeros_like(shared)).to(fl.float32)


@composite("torchvision::_cuda_version")
def _cuda_version() -> int:
    """Of the CUDA with which torchvision's operators were compiled: none."""
    return -1


# ---------------------------------------------------------------- what passes know of these operators

tag("data_dependent no_grad", "torchvision::nms")
tag("no_grad", "torchvision::qnms torchvision::qroi_align torchvision::box_iou_rotated")
autocast("float32", "torchvision::nms torchvision::roi_align")
autocast("float32", "torchvision::roi_pool torchvision::ps_roi_align torchvision::ps_roi_pool", on="accelerator")
