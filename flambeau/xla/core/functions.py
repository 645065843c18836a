"""Collectives with gradients, over the one process there is."""

from __future__ import annotations

from typing import Any

from flambeau.xla.core import xla_model

__all__ = ["all_gather", "all_reduce", "distributed_mm", "nms"]


def all_reduce(reduce_type: str, value: Any, scale: float | None = None, groups: Any = None, cctx: Any = None) -> Any:
    return xla_model.all_reduce(reduce_type, value, 1.0 if scale is None else scale, groups)


def all_gather(value: Any, dim: int = 0) -> Any:
    return xla_model.all_gather(value, dim)


def nms(boxes: Any, scores: Any, score_threshold: float, iou_threshold: float, output_size: int) -> Any:
    """The boxes that survive, of those with a score above the threshold."""
    from flambeau.vision.ops import nms as survivors

    candidates = (scores > score_threshold).nonzero().squeeze(1)
    return candidates[survivors(boxes[candidates], scores[candidates], iou_threshold)][:output_size]


def distributed_mm(w: Any, x: Any, split: int = 1) -> Any:
    """The product of a matrix that is divided by rows with one that all processes have."""
    return w @ x
