"""Losses over class indices or probabilities of classes: native records, their gradients, `cross_entropy` in pieces."""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as fl
from flambeau.ops.loss.records import legacy_reduction, reduced, reduction_number
from flambeau.ops.record import autocast, composite, native, tag, vjp

native(
    "_nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, Tensor)"
)
native("_cross_entropy_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, Tensor, Tensor)")  # fmt: skip


native("_nll_loss_backward(Tensor grad, int[] sizes, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight) -> Tensor")  # fmt: skip
native("_cross_entropy_backward(Tensor grad, Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight, Tensor log_sums) -> Tensor")  # fmt: skip


def _row_gradients(
    g: fl.Tensor, target: fl.Tensor, weight: fl.Tensor | None, reduction: int, ignore_index: int, total: fl.Tensor
) -> tuple[fl.Tensor, fl.Tensor]:
    """For each row what its loss contributes, in the shape of the targets; and the targets with ignored ones at zero."""
    counted = target != ignore_index
    safe = target.masked_fill(counted.logical_not(), 0).to(fl.int64)
    factor = counted.to(g.dtype)
    if weight is not None:
        factor = factor * weight.index_select(0, safe.reshape(-1)).reshape(safe.shape)
    if reduction == 1:
        factor = factor / total
    return g * factor, safe


def nll_loss_gradient(
    grad: fl.Tensor,
    sizes: fl.Size,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: fl.Tensor,
) -> fl.Tensor:
    at = 0 if len(sizes) == 1 else 1
    rows, safe = _row_gradients(grad, target, weight, reduction, ignore_index, total_weight)
    zeros = fl.zeros(sizes, dtype=grad.dtype, device=grad.device)
    if at == 0:
        return zeros.scatter(0, safe.reshape(1), -rows.reshape(1))
    return zeros.scatter(at, safe.unsqueeze(at), -rows.unsqueeze(at))


def cross_entropy_gradient(
    grad: fl.Tensor,
    self: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: fl.Tensor,
    log_sums: fl.Tensor,
) -> fl.Tensor:
    at = 0 if self.dim() == 1 else 1
    rows, safe = _row_gradients(grad, target, weight, reduction, ignore_index, total_weight)
    if at == 0:
        soft = (self - log_sums.reshape(1)).exp() * rows.reshape(1)
        return soft.scatter_add(0, safe.reshape(1), -rows.reshape(1))
    soft = (self - log_sums.unsqueeze(at)).exp() * rows.unsqueeze(at)
    return soft.to(rows.dtype).scatter_add(at, safe.unsqueeze(at), -rows.unsqueeze(at))


@vjp("_nll_loss_forward")
def nll_loss_vjp(
    g0: fl.Tensor,
    self_sizes: fl.Size,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    reduction: int,
    ignore_index: int,
    out1: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    gradient = nll_loss_gradient if fl.is_grad_enabled() else fl._ops._nll_loss_backward
    return gradient(g0, self_sizes, target, weight, reduction, ignore_index, out1.detach()), None


@vjp("_cross_entropy_forward")
def cross_entropy_vjp(
    g0: fl.Tensor,
    self: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    reduction: int,
    ignore_index: int,
    out1: fl.Tensor,
    out2: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    options = (weight, reduction, ignore_index, out1.detach())
    if not fl.is_grad_enabled():
        return fl._ops._cross_entropy_backward(g0, self, target, *options, out2), None
    log_sums = self.logsumexp(0 if self.dim() == 1 else 1).reshape(target.shape)
    return cross_entropy_gradient(g0, self, target, *options, log_sums), None


@composite(module="nn.functional")
def nll_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    return fl._ops._nll_loss_forward(input, target, weight, reduction_number("nll_loss", reduction), ignore_index)[0]


@composite(module="nn.functional")
def cross_entropy(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    number = reduction_number("cross_entropy", reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(
            f"[cross_entropy] expected label_smoothing in [0, 1], got {label_smoothing}: label_smoothing must be between 0.0 and 1.0"
        )
    if input.dim() == 0:
        raise RuntimeError("[cross_entropy] expected input with a dimension of classes, got a 0-d tensor")
    if target.shape == input.shape:
        return probability_entropy(input, target, weight, reduction, ignore_index, label_smoothing)
    if label_smoothing > 0:
        return smoothed_entropy(input, target, weight, reduction, ignore_index, label_smoothing)
    return fl._ops._cross_entropy_forward(input, target, weight, number, ignore_index)[0]


def class_weight(input: fl.Tensor, weight: fl.Tensor) -> fl.Tensor:
    """The weight of each class in a shape that broadcasts against the scores."""
    classes = input.shape[0 if input.dim() == 1 else 1]
    if weight.dim() != 1 or weight.numel() != classes:
        raise RuntimeError(
            f"[cross_entropy] expected a weight for each of {classes} classes, got {tuple(weight.shape)}"
        )
    return weight if input.dim() == 1 else weight.view([1, -1] + [1] * (input.dim() - 2))


def probability_entropy(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> fl.Tensor:
    if not target.is_floating_point():
        raise RuntimeError(
            f"[cross_entropy] expected floating point probabilities for a target in the shape of the input, got {target.dtype}; "
            "convert it with .float(), or pass class indices (argmax(1) of one-hot rows)"
        )
    if ignore_index >= 0:
        raise RuntimeError("[cross_entropy] expected no ignore_index with probabilities, got one")
    dim = 0 if input.dim() == 1 else 1
    classes = input.shape[dim]
    if label_smoothing > 0:
        target = target * (1 - label_smoothing) + (label_smoothing / classes if classes else 0.0)
    terms = fl.log_softmax(input, dim) * target
    if weight is not None:
        terms = terms * class_weight(input, weight)
    loss = -terms.sum(dim)
    if reduction == "mean":
        return loss.sum() / (input.numel() / classes) if input.numel() else loss.sum() * math.nan
    return reduced("cross_entropy", loss, reduction)


def smoothed_entropy(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> fl.Tensor:
    """Part of the target's mass is spread evenly over the classes."""
    dim = 0 if input.dim() == 1 else 1
    scores = fl.log_softmax(input, dim)
    number = reduction_number("cross_entropy", reduction)
    nll, total = fl._ops._nll_loss_forward(scores, target, weight, number, ignore_index)
    smooth = -(scores if weight is None else scores * class_weight(input, weight)).sum(dim)
    counted = target != ignore_index
    smooth = smooth * counted if smooth.shape == counted.shape else smooth * counted.reshape(smooth.shape)
    if reduction == "mean":
        smooth = smooth.sum() / (counted.sum() if weight is None else total)
    elif reduction == "sum":
        smooth = smooth.sum()
    return nll * (1 - label_smoothing) + smooth * (label_smoothing / input.shape[dim])


def entropy_in_pieces(
    input: fl.Tensor,
    linear_weight: fl.Tensor,
    target: fl.Tensor,
    bias: fl.Tensor | None,
    weight: fl.Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    options: Any,
) -> fl.Tensor:
    """linear_cross_entropy over pieces of the batch, so that only the scores of one piece exist at a time."""
    wide = options.sum_dtype(input.dtype)
    batch, features = input.shape
    rows = options.rows(batch, features, linear_weight.shape[0])
    each = "none" if reduction == "none" else "sum"
    reduction_number("linear_cross_entropy", reduction)
    losses = []
    for start in range(0, max(1, batch), rows):
        scores = fl.nn.functional.linear(input[start : start + rows], linear_weight, bias)
        loss = fl.nn.functional.cross_entropy(
            scores.to(wide),
            target[start : start + rows],
            None if weight is None else weight.to(wide),
            ignore_index=ignore_index,
            reduction=each,
            label_smoothing=label_smoothing,
        )
        losses.append(loss)
    if reduction == "none":
        return fl.cat(losses).to(input.dtype)
    total = fl.stack(losses).sum()
    if reduction == "mean":
        counted = target != ignore_index
        if weight is None:
            total = total / counted.sum()
        else:
            total = total / (weight.to(wide)[fl.where(counted, target, 0)] * counted).sum()
    return total.to(input.dtype)


@composite(module="nn.functional")
def linear_cross_entropy(
    input: fl.Tensor,
    linear_weight: fl.Tensor,
    target: fl.Tensor,
    *,
    linear_bias: fl.Tensor | None = None,
    weight: fl.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> fl.Tensor:
    if input.dim() not in (1, 2):
        raise RuntimeError(f"[linear_cross_entropy] expected an input of 1 or 2 dimensions, got {input.dim()}")
    if linear_weight.dim() < 2 or linear_weight.shape[-1] != input.shape[-1]:
        raise RuntimeError(
            f"[linear_cross_entropy] expected a linear_weight of shape (classes, ..., {input.shape[-1]}), "
            f"got {tuple(linear_weight.shape)}"
        )
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise RuntimeError(
            "[linear_cross_entropy] expected a batch of inputs for losses with more dimensions, got one input"
        )
    if linear_bias is not None and linear_bias.shape != linear_weight.shape[:-1]:
        raise RuntimeError(
            f"[linear_cross_entropy] expected a linear_bias of shape {tuple(linear_weight.shape[:-1])}, "
            f"got {tuple(linear_bias.shape)}"
        )
    if options is not None:
        if not isinstance(options, fl.nn.LinearCrossEntropyOptions):
            name = type(options).__name__
            raise TypeError(f"[linear_cross_entropy] expected options of nn.LinearCrossEntropyOptions, got {name}")
        if input.dim() == 2 and linear_weight.dim() == 2 and not target.is_floating_point():
            index = -100 if ignore_index is None else ignore_index
            return entropy_in_pieces(
                input, linear_weight, target, linear_bias, weight, reduction, index, label_smoothing, options
            )
        warnings.warn(
            "[linear_cross_entropy] expected a batch of rows with class indices for options, got another case",
            stacklevel=2,
        )
    # The weight is (classes, d..., features): one product gives the scores of every (class, d...).
    flat = linear_weight.reshape(-1, linear_weight.shape[-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    scores = fl.nn.functional.linear(input, flat, bias)
    scores = scores.reshape([*input.shape[:-1], *linear_weight.shape[:-1]])
    index = -100 if ignore_index is None else ignore_index
    return fl.nn.functional.cross_entropy(
        scores, target, weight, ignore_index=index, reduction=reduction, label_smoothing=label_smoothing
    )


# ---------------------------------------------------------------- what passes know of these operators

tag("constant_gradient", "_nll_loss_forward")
autocast("float32", "cross_entropy nll_loss")
