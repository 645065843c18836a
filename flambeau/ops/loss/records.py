"""Elementwise losses, and the reductions that all losses share.

Each is a pointwise record followed by a reduction. Losses over class indices and margins stand in files of their own; the
functions of the top-level module that take the reduction as a number (0 none, 1 mean, 2 sum) in `distance`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.record import Scalar, autocast, composite, node, pointwise, tag
from flambeau.ops.values import all_values

ELEMENTS: dict[str, Any] = {"inplace": False, "out": False, "method": False}
REDUCTIONS = ("none", "mean", "sum")


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that the deprecated pair of flags means, when one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    meant = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{meant}' instead.", stacklevel=3
    )
    return meant


def reduction_number(op: str, reduction: str) -> int:
    if reduction not in REDUCTIONS:
        raise ValueError(f"[{op}] expected reduction 'none', 'mean' or 'sum', got {reduction!r}")
    return REDUCTIONS.index(reduction)


def reduced(op: str, loss: fl.Tensor, reduction: str) -> fl.Tensor:
    number = reduction_number(op, reduction)
    return loss if number == 0 else loss.mean() if number == 1 else loss.sum()


def warn_broadcast(op: str, input: fl.Tensor, target: fl.Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"[{op}] expected input and target of one shape, got {tuple(input.shape)} and {tuple(target.shape)}; "
            "they are broadcast, which is rarely meant. Please ensure they have the same size.",
            stacklevel=3,
        )


def weighted(op: str, loss: fl.Tensor, weight: fl.Tensor | None, reduction: str) -> fl.Tensor:
    """Reduction with a weight for each element; the mean divides by the sum of the weights."""
    if weight is None:
        return reduced(op, loss, reduction)
    if weight.shape != loss.shape:
        raise ValueError(f"[{op}] expected a weight of shape {tuple(loss.shape)}, got {tuple(weight.shape)}")
    number = reduction_number(op, reduction)
    loss = loss * weight
    return loss if number == 0 else loss.sum() / weight.sum() if number == 1 else loss.sum()


def promoted(input: fl.Tensor, target: fl.Tensor) -> tuple[fl.Tensor, fl.Tensor]:
    """Both in the dtype of both: a target without dimensions has as much say in it as one of the input's shape."""
    if input.dtype == target.dtype or (input.dim() == 0) == (target.dim() == 0):
        return input, target
    dtype = fl.promote_types(input.dtype, target.dtype)
    return input.to(dtype), target.to(dtype)


# ---------------------------------------------------------------- elements

pointwise(
    "_mse(Tensor self, Tensor target) -> Tensor",
    lambda x, y: (x - y) * (x - y),
    vjp=lambda g, x, y, out: (g * 2 * (x - y), g * 2 * (y - x)),
    **ELEMENTS,
)


def smooth_step(x: e.Expr, y: e.Expr, beta: e.Expr) -> e.Expr:
    d = e.abs(x - y)
    return e.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


def smooth_l1_gradient(g: e.Expr, x: e.Expr, y: e.Expr, beta: e.Expr) -> e.Expr:
    return g * e.where(e.abs(x - y) < beta, (x - y) / beta, e.where(x > y, 1.0, -1.0))


pointwise(
    "_smooth_l1(Tensor self, Tensor target, Scalar beta) -> Tensor",
    smooth_step,
    dtypes="f",
    vjp=lambda g, x, y, beta, out: (smooth_l1_gradient(g, x, y, beta), -smooth_l1_gradient(g, x, y, beta)),
    **ELEMENTS,
)


def huber_step(x: e.Expr, y: e.Expr, delta: e.Expr) -> e.Expr:
    d = e.abs(x - y)
    return e.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


def huber_gradient(g: e.Expr, x: e.Expr, y: e.Expr, delta: e.Expr) -> e.Expr:
    return g * e.where(e.abs(x - y) <= delta, x - y, e.where(x > y, delta, -delta))


pointwise(
    "_huber(Tensor self, Tensor target, Scalar delta) -> Tensor",
    huber_step,
    dtypes="f",
    vjp=lambda g, x, y, delta, out: (huber_gradient(g, x, y, delta), -huber_gradient(g, x, y, delta)),
    **ELEMENTS,
)

# Logarithms are clamped at -100, so that the loss stays finite at 0 and 1.
pointwise(
    "_bce(Tensor self, Tensor target) -> Tensor",
    lambda x, y: (y - 1) * e.maximum(e.log1p(-x), -100.0) - y * e.maximum(e.log(x), -100.0),
    dtypes="f",
    vjp=lambda g, x, y, out: (g * (x - y) / e.maximum((1 - x) * x, 1e-12), g * (e.log1p(-x) - e.log(x))),
    **ELEMENTS,
)

pointwise(
    "_bce_with_logits(Tensor self, Tensor target) -> Tensor",
    lambda x, y: e.maximum(x, 0.0) - x * y + e.log1p(e.exp(-e.abs(x))),
    dtypes="f",
    vjp=lambda g, x, y, out: (g * (e.sigmoid(x) - y), -g * x),
    **ELEMENTS,
)

pointwise(
    "_bce_with_logits_weighted(Tensor self, Tensor target, Tensor pos_weight) -> Tensor",
    lambda x, y, w: (1 - y) * x + (1 + (w - 1) * y) * (e.log1p(e.exp(-e.abs(x))) + e.maximum(-x, 0.0)),
    dtypes="f",
    vjp=lambda g, x, y, w, out: (
        g * ((1 - y) - (1 + (w - 1) * y) * e.sigmoid(-x)),
        g * ((w - 1) * (e.log1p(e.exp(-e.abs(x))) + e.maximum(-x, 0.0)) - x),
        g * (y * (e.log1p(e.exp(-e.abs(x))) + e.maximum(-x, 0.0))),
    ),
    **ELEMENTS,
)

pointwise(
    "_soft_margin(Tensor self, Tensor target) -> Tensor",
    lambda x, y: e.log1p(e.exp(-y * x)),
    dtypes="f",
    vjp=lambda g, x, y, out: (-g * y * e.sigmoid(-y * x), -g * x * e.sigmoid(-y * x)),
    **ELEMENTS,
)


@composite(module="nn.functional")
def mse_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: fl.Tensor | None = None,
) -> fl.Tensor:
    warn_broadcast("mse_loss", input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    return weighted("mse_loss", fl._ops._mse(*promoted(input, target)), weight, reduction)


@composite(module="nn.functional")
def l1_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: fl.Tensor | None = None,
) -> fl.Tensor:
    warn_broadcast("l1_loss", input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = promoted(input, target)
    return weighted("l1_loss", (input - target).abs(), weight, reduction)


@composite(module="nn.functional")
def smooth_l1_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> fl.Tensor:
    if beta < 0:
        raise RuntimeError(f"[smooth_l1_loss] expected beta >= 0, got {beta}")
    warn_broadcast("smooth_l1_loss", input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    input, target = promoted(input, target)
    loss = (input - target).abs() if beta == 0 else fl._ops._smooth_l1(input, target, beta)
    return reduced("smooth_l1_loss", loss, reduction)


@composite(module="nn.functional")
def huber_loss(
    input: fl.Tensor, target: fl.Tensor, reduction: str = "mean", delta: float = 1.0, weight: fl.Tensor | None = None
) -> fl.Tensor:
    if delta <= 0:
        raise RuntimeError(f"[huber_loss] expected delta > 0, got {delta}")
    warn_broadcast("huber_loss", input, target)
    return weighted("huber_loss", fl._ops._huber(input, target, delta), weight, reduction)


def _probabilities(x: fl.Tensor) -> bool:
    return bool(((x >= 0) & (x <= 1)).all())


@composite(module="nn.functional")
def binary_cross_entropy(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"[binary_cross_entropy] expected a target of shape {tuple(input.shape)}, got {tuple(target.shape)}: Using a target size "
            f"({target.shape}) that is different to the input size ({input.shape}) is deprecated. Please ensure they have the same size."
        )
    if not target.is_floating_point():
        raise RuntimeError(
            f"[binary_cross_entropy] expected a floating target, got {target.dtype}: pass target.to(input.dtype)"
        )
    if input.device.type == "cpu" and input.numel() and not _probabilities(all_values(input)):
        raise RuntimeError(
            "[binary_cross_entropy] expected all elements of input in [0, 1], got one outside: all elements of input should be between 0 and 1; "
            "apply sigmoid first, or pass logits to binary_cross_entropy_with_logits"
        )
    loss = fl._ops._bce(input, target)
    return reduced("binary_cross_entropy", loss if weight is None else loss * weight, reduction)


@composite()
def nn_binary_cross_entropy_with_logits(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: fl.Tensor | None = None,
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    if input.shape != target.shape:
        raise ValueError(
            f"[binary_cross_entropy_with_logits] expected a target of shape {tuple(input.shape)}, got {tuple(target.shape)}"
        )
    return logits_loss(input, target, weight, pos_weight, reduction)


def logits_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None,
    pos_weight: fl.Tensor | None,
    reduction: str,
) -> fl.Tensor:
    if not target.is_floating_point():
        raise RuntimeError(
            f"[binary_cross_entropy_with_logits] expected a floating target, got {target.dtype}: pass target.to(input.dtype)"
        )
    if pos_weight is None:
        loss = fl._ops._bce_with_logits(input, target)
    else:
        loss = fl._ops._bce_with_logits_weighted(input, target, pos_weight)
    return reduced("binary_cross_entropy_with_logits", loss if weight is None else loss * weight, reduction)


@composite()
def nn_kl_div(
    input: fl.Tensor,
    target: fl.Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. "
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition.",
            stacklevel=2,
        )
    return divergence(input, target, reduction, log_target)


def divergence(input: fl.Tensor, target: fl.Tensor, reduction: str, log_target: bool) -> fl.Tensor:
    if not (input.is_floating_point() and target.is_floating_point()):
        raise RuntimeError(f"[kl_div] expected floating point tensors, got {input.dtype} and {target.dtype}")
    loss = target.exp() * (target - input) if log_target else fl.xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.dim() else loss.sum()
    return reduced("kl_div", loss, reduction)


def poisson_elements(input: fl.Tensor, target: fl.Tensor, log_input: bool, full: bool, eps: float) -> fl.Tensor:
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        # Stirling's approximation of log(target!).
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0).to(loss.dtype)
    return loss


@composite()
def nn_poisson_nll_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    reduction_number("poisson_nll_loss", reduction)
    return reduced("poisson_nll_loss", poisson_elements(input, target, log_input, full, eps), reduction)


@composite(module="nn.functional")
def gaussian_nll_loss(
    input: fl.Tensor,
    target: fl.Tensor,
    var: fl.Tensor | Scalar,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> fl.Tensor:
    if not isinstance(var, fl.Tensor):
        if var < 0:  # type: ignore[operator]
            raise ValueError(f"[gaussian_nll_loss] expected var >= 0, got {var}")
        var = fl.full(tuple(input.shape), float(var), dtype=input.dtype, device=input.device)  # type: ignore[arg-type]
    elif var.device.type != "meta" and bool((all_values(var) < 0).any()):
        raise ValueError(
            "[gaussian_nll_loss] expected var >= 0, got a negative element: var has negative entry/entries"
        )
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (input.shape[:-1] == var.shape[:-1] and var.shape[-1] == 1):
            try:
                compatible = tuple(fl.broadcast_shapes(tuple(input.shape), tuple(var.shape))) == tuple(input.shape)
            except RuntimeError:
                compatible = False
            if not compatible:
                raise ValueError(
                    f"[gaussian_nll_loss] expected var to broadcast to {tuple(input.shape)}, got {tuple(var.shape)}: var is of incorrect size"
                )
    reduction_number("gaussian_nll_loss", reduction)
    # The clamp is no part of the derivative.
    var = var.clone()
    with fl.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced("gaussian_nll_loss", loss, reduction)


# ---------------------------------------------------------------- what passes know of these operators

tag("element_loss", "_bce _bce_with_logits _huber _mse _smooth_l1")
autocast(
    "float32",
    "huber_loss l1_loss mse_loss nn_binary_cross_entropy_with_logits nn_kl_div nn_poisson_nll_loss smooth_l1_loss",
)
autocast("float32", "binary_cross_entropy", on="cpu")
autocast("refused", "binary_cross_entropy", on="accelerator")
node("BinaryCrossEntropyBackward0", "_bce")
node("BinaryCrossEntropyWithLogitsBackward0", "_bce_with_logits")
node("HuberLossBackward0", "_huber")
node("MseLossBackward0", "_mse")
node("SmoothL1LossBackward0", "_smooth_l1")
