"""Losses of detection models."""

from __future__ import annotations

import flambeau
from flambeau.nn import functional as F


def sigmoid_focal_loss(
    inputs: flambeau.Tensor,
    targets: flambeau.Tensor,
    alpha: float = 0.25,
    gamma: float = 2,
    reduction: str = "none",
) -> flambeau.Tensor:
    """Binary cross entropy that gives less weight to examples that are classified well."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"[sigmoid_focal_loss] expected none, mean or sum, got {reduction!r}")
    probability = flambeau.sigmoid(inputs)
    of_target = probability * targets + (1 - probability) * (1 - targets)
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none") * (1 - of_target) ** gamma
    if alpha >= 0:
        loss = loss * (alpha * targets + (1 - alpha) * (1 - targets))
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()
