"""Boxes as rows (x1, y1, x2, y2): areas, overlaps, suppression."""

from __future__ import annotations

import math

import flambeau
from flambeau import Tensor


def box_area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _overlap(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Areas of intersection and union of each pair."""
    low = flambeau.max(boxes1[:, None, :2], boxes2[None, :, :2])
    high = flambeau.min(boxes1[:, None, 2:], boxes2[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    return shared, box_area(boxes1)[:, None] + box_area(boxes2)[None] - shared


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Intersection over union of each pair."""
    shared, union = _overlap(boxes1, boxes2)
    return shared / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Intersection over union, less the empty part of the smallest box around both."""
    shared, union = _overlap(boxes1, boxes2)
    low = flambeau.min(boxes1[:, None, :2], boxes2[None, :, :2])
    high = flambeau.max(boxes1[:, None, 2:], boxes2[None, :, 2:])
    around = (high - low).clamp(min=0).prod(-1)
    return shared / union - (around - union) / around


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Intersection over union, less the distance of the centres as a part of the diagonal around both."""
    low = flambeau.min(boxes1[:, None, :2], boxes2[None, :, :2])
    high = flambeau.max(boxes1[:, None, 2:], boxes2[None, :, 2:])
    diagonal = (high - low).clamp(min=0).square().sum(-1) + eps
    centers1, centers2 = ((b[:, :2] + b[:, 2:]) / 2 for b in (boxes1, boxes2))
    return box_iou(boxes1, boxes2) - (centers1[:, None] - centers2[None]).square().sum(-1) / diagonal


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """The same, less a penalty for different shapes."""
    overlap = box_iou(boxes1, boxes2)
    angles = [flambeau.atan((b[:, 2] - b[:, 0]) / (b[:, 3] - b[:, 1])) for b in (boxes1, boxes2)]
    shape = 4 / math.pi**2 * (angles[0][:, None] - angles[1][None]).square()
    with flambeau.no_grad():
        weight = shape / (1 - overlap + shape + eps)
    return distance_box_iou(boxes1, boxes2, eps) - weight * shape


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that overlap no better one by more than the threshold, best first."""
    return flambeau.ops.torchvision.nms(boxes, scores, iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """The same within each category."""
    if boxes.numel() == 0:
        return flambeau.empty(0, dtype=flambeau.int64, device=boxes.device)
    apart = idxs.to(boxes) * (boxes.max() + 1)
    return nms(boxes + apart[:, None], scores, iou_threshold)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return flambeau.where((width >= min_size) & (height >= min_size))[0]


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    height, width = size
    xs, ys = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return flambeau.stack((xs, ys), dim=boxes.dim()).reshape(boxes.shape)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Between corners (xyxy), corner and size (xywh), centre and size (cxcywh)."""
    known = ("xyxy", "xywh", "cxcywh")
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(f"[box_convert] expected formats of {known}, got {in_fmt!r} and {out_fmt!r}")
    a, b, c, d = boxes.unbind(-1)
    if in_fmt == "xywh":
        c, d = a + c, b + d
    elif in_fmt == "cxcywh":
        a, b, c, d = a - 0.5 * c, b - 0.5 * d, a + 0.5 * c, b + 0.5 * d
    if out_fmt == "xywh":
        c, d = c - a, d - b
    elif out_fmt == "cxcywh":
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return flambeau.stack((a, b, c, d), dim=-1)


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The smallest box around each mask."""
    boxes = flambeau.zeros(masks.shape[0], 4)
    for row, mask in zip(boxes, masks):
        y, x = flambeau.where(mask != 0)
        row[0], row[1], row[2], row[3] = x.min(), y.min(), x.max(), y.max()
    return boxes
