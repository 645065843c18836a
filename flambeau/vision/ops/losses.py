"""Losses of detection models."""

from __future__ import annotations

import math

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F


def sigmoid_focal_loss(
    inputs: flambeau.Tensor,
    targets: flambeau.Tensor,
    alpha: float = 0.25,
    gamma: float = 2,
    reduction: str = "none",
) -> flambeau.Tensor:
    """Binary cross entropy that gives less weight to examples that are classified well."""
    probability = flambeau.sigmoid(inputs)
    of_target = probability * targets + (1 - probability) * (1 - targets)
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none") * (1 - of_target) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * targets + (1 - alpha) * (1 - targets))
    return _reduced("sigmoid_focal_loss", loss, reduction)


def _reduced(op: str, loss: Tensor, reduction: str) -> Tensor:
    """Of no elements the mean is 0, so that it can be differentiated."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"[{op}] expected none, mean or sum, got {reduction!r}")
    if reduction == "mean":
        return loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
    return loss.sum() if reduction == "sum" else loss


def _overlap(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Areas of intersection and union, row by row."""
    low, high = flambeau.max(boxes1[..., :2], boxes2[..., :2]), flambeau.min(boxes1[..., 2:], boxes2[..., 2:])
    sides = high - low
    shared = flambeau.where((sides > 0).all(-1), sides.prod(-1), flambeau.zeros_like(sides[..., 0]))
    areas = [(b[..., 2:] - b[..., :2]).prod(-1) for b in (boxes1, boxes2)]
    return shared, areas[0] + areas[1] - shared


def _around(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Sides of the smallest box around both."""
    return flambeau.max(boxes1[..., 2:], boxes2[..., 2:]) - flambeau.min(boxes1[..., :2], boxes2[..., :2])


def generalized_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """1 - intersection over union + the empty part of the smallest box around both, row by row."""
    shared, union = _overlap(boxes1, boxes2)
    around = _around(boxes1, boxes2).prod(-1)
    loss = 1 - (shared / (union + eps) - (around - union) / (around + eps))
    return _reduced("generalized_box_iou_loss", loss, reduction)


def _distance_loss(boxes1: Tensor, boxes2: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    shared, union = _overlap(boxes1, boxes2)
    overlap = shared / (union + eps)
    diagonal = _around(boxes1, boxes2).square().sum(-1) + eps
    apart = ((boxes1[..., :2] + boxes1[..., 2:]) / 2 - (boxes2[..., :2] + boxes2[..., 2:]) / 2).square().sum(-1)
    return 1 - overlap + apart / diagonal, overlap


def distance_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """1 - intersection over union + the distance of the centres as a part of the diagonal around both."""
    return _reduced("distance_box_iou_loss", _distance_loss(boxes1, boxes2, eps)[0], reduction)


def complete_box_iou_loss(boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7) -> Tensor:
    """The same with a penalty for different shapes."""
    loss, overlap = _distance_loss(boxes1, boxes2, eps)
    angles = [flambeau.atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in (boxes2, boxes1)]
    shape = 4 / math.pi**2 * (angles[0] - angles[1]).square()
    with flambeau.no_grad():
        weight = shape / (1 - overlap + shape + eps)
    return _reduced("complete_box_iou_loss", loss + weight * shape, reduction)
