"""Losses that compare scores with a margin."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.loss.records import legacy_reduction, reduced, reduction_number
from flambeau.ops.record import autocast, composite


@composite(module="nn.functional")
def multi_margin_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: fl.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    reduction_number("multi_margin_loss", reduction)
    if p not in (1, 2):
        raise ValueError(f"[multi_margin_loss] expected p 1 or 2, got {p}")
    if weight is not None and weight.dim() != 1:
        raise ValueError(f"[multi_margin_loss] expected a weight of one dimension, got {weight.dim()}")
    if not input.is_floating_point():
        raise NotImplementedError(f"[multi_margin_loss] expected a floating point input, got {input.dtype}")
    if input.dim() > 2 or (input.numel() == 0 and input.dim() and input.shape[-1] == 0):
        raise RuntimeError(
            f"[multi_margin_loss] expected a vector or a matrix that is not empty, got {tuple(input.shape)}: Expected non-empty vector "
            "or matrix with optional 0-dim batch size"
        )
    scores = input.reshape(1, -1) if input.dim() < 2 else input
    index = target.reshape(-1)
    if target.dim() > 1 or index.shape[0] != scores.shape[0]:
        raise RuntimeError(
            f"[multi_margin_loss] expected {scores.shape[0]} targets, got a target of shape {tuple(target.shape)}"
        )
    if weight is not None and weight.numel() != scores.shape[1]:
        raise RuntimeError(f"[multi_margin_loss] expected {scores.shape[1]} weights, got {tuple(weight.shape)}")
    column = index.unsqueeze(1)
    loss = (margin - scores.gather(1, column) + scores).clamp_min(0)
    loss = loss * loss if p == 2 else loss
    if weight is not None:
        loss = loss * weight[index].unsqueeze(1)
    loss = loss.scatter(1, column, 0.0).sum(1) / scores.shape[1]
    if reduction == "none":
        return loss.reshape(()) if input.dim() < 2 and target.dim() == 0 else loss
    return reduced("multi_margin_loss", loss, reduction)


@composite(module="nn.functional")
def multilabel_margin_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    reduction_number("multilabel_margin_loss", reduction)
    if input.dim() and input.shape[-1] == 0:
        raise RuntimeError(f"[multilabel_margin_loss] expected rows that are not empty, got {tuple(input.shape)}")
    if input.dim() > 2 or input.shape != target.shape:
        raise RuntimeError(
            f"[multilabel_margin_loss] expected vectors or matrices of one shape, got {tuple(input.shape)} and {tuple(target.shape)}"
        )
    scores = input.reshape(1, -1) if input.dim() < 2 else input
    labels = target.reshape(scores.shape)
    # Labels of a row end at the first that is negative.
    valid = ((labels < 0).cumsum(1) == 0) if labels.numel() else labels >= 0
    index = labels.masked_fill(~valid, 0)
    is_target = fl.zeros_like(scores).scatter_add_(1, index, valid.to(scores.dtype)) > 0
    gaps = (1 - scores.gather(1, index).unsqueeze(2) + scores.unsqueeze(1)).clamp_min(0)
    counted = valid.unsqueeze(2) & ~is_target.unsqueeze(1)
    loss = gaps.masked_fill(~counted, 0).sum((1, 2)) / max(scores.shape[1], 1)
    if reduction == "none" and input.dim() < 2:
        return loss.reshape(())
    return reduced("multilabel_margin_loss", loss, reduction)


@composite(module="nn.functional")
def multilabel_soft_margin_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    log_sigmoid = fl.nn.functional.logsigmoid
    loss = -(target * log_sigmoid(input) + (1 - target) * log_sigmoid(-input))
    loss = loss if weight is None else loss * weight
    return reduced("multilabel_soft_margin_loss", loss.mean(-1) if input.dim() else loss, reduction)


@composite(module="nn.functional")
def soft_margin_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    losses = fl._ops._soft_margin(input, target)
    # The result has the input's dtype, whatever the target's.
    return reduced("soft_margin_loss", losses.to(input.dtype) if input.is_floating_point() else losses, reduction)


def hinge_elements(input: fl.Tensor, target: fl.Tensor, margin: float) -> fl.Tensor:
    zeros = fl.zeros_like(input)
    return fl.where(target != 1, (margin - input).clamp_min(0), zeros) + fl.where(target != -1, input, zeros)


@composite()
def nn_hinge_embedding_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    return reduced("hinge_embedding_loss", hinge_elements(input, target, margin), reduction)


def ranking_elements(input1: fl.Tensor, input2: fl.Tensor, target: fl.Tensor, margin: float) -> fl.Tensor:
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            f"[margin_ranking_loss] expected tensors of one number of dimensions, got {input1.dim()}, {input2.dim()} and {target.dim()}"
        )
    return (-target * (input1 - input2) + margin).clamp_min(0)


@composite()
def nn_margin_ranking_loss(
    input1: fl.Tensor,
    input2: fl.Tensor,
    target: fl.Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    return reduced("margin_ranking_loss", ranking_elements(input1, input2, target, margin), reduction)


# ---------------------------------------------------------------- what passes know of these operators

autocast(
    "float32",
    "multi_margin_loss multilabel_margin_loss nn_hinge_embedding_loss nn_margin_ranking_loss soft_margin_loss",
)
