"""Loss functions of nn.functional.

Elementwise losses are pointwise records followed by a reduction; those over class indices are native. The functions
of the top-level module that take the reduction as a number (0 none, 1 mean, 2 sum) are at the end.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.record import Scalar, autocast, composite, native, node, pointwise, tag, vjp
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
            "they are broadcast, which is rarely meant",
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
            f"[binary_cross_entropy] expected a target of shape {tuple(input.shape)}, got {tuple(target.shape)}"
        )
    if not target.is_floating_point():
        raise RuntimeError(
            f"[binary_cross_entropy] expected a floating target, got {target.dtype}: pass target.to(input.dtype)"
        )
    if input.device.type == "cpu" and input.numel() and not _probabilities(all_values(input)):
        raise RuntimeError(
            "[binary_cross_entropy] expected all elements of input in [0, 1], got one outside; "
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
        raise ValueError("[gaussian_nll_loss] expected var >= 0, got a negative element")
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
                    f"[gaussian_nll_loss] expected var to broadcast to {tuple(input.shape)}, got {tuple(var.shape)}"
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


# ---------------------------------------------------------------- class indices

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
        raise RuntimeError(f"[cross_entropy] expected label_smoothing in [0, 1], got {label_smoothing}")
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


# ---------------------------------------------------------------- margins


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
            f"[multi_margin_loss] expected a vector or a matrix that is not empty, got {tuple(input.shape)}"
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

tag("constant_gradient", "_nll_loss_forward")
tag("element_loss", "_bce _bce_with_logits _huber _mse _smooth_l1")
autocast(
    "float32",
    "cross_entropy huber_loss l1_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss "
    "nn_binary_cross_entropy_with_logits nn_hinge_embedding_loss nn_kl_div nn_margin_ranking_loss "
    "nn_poisson_nll_loss smooth_l1_loss soft_margin_loss",
)
autocast("float32", "binary_cross_entropy", on="cpu")
autocast("refused", "binary_cross_entropy", on="accelerator")
node("BinaryCrossEntropyBackward0", "_bce")
node("BinaryCrossEntropyWithLogitsBackward0", "_bce_with_logits")
node("HuberLossBackward0", "_huber")
node("MseLossBackward0", "_mse")
node("SmoothL1LossBackward0", "_smooth_l1")
