"""Distances and similarities between vectors, the losses made of them, and CTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops.loss.margins import hinge_elements, ranking_elements
from flambeau.ops.loss.records import (
    REDUCTIONS,
    divergence,
    legacy_reduction,
    logits_loss,
    poisson_elements,
    reduced,
    reduction_number,
)
from flambeau.ops.record import autocast, composite, native, vjp

# ---------------------------------------------------------------- distances


@composite(method=False)
@composite("nn_cosine_similarity")
def cosine_similarity(x1: fl.Tensor, x2: fl.Tensor, dim: int = 1, eps: float = 1e-8) -> fl.Tensor:
    dtype = fl.result_type(x1, x2)
    if not dtype.is_floating_point:
        raise RuntimeError(f"[cosine_similarity] expected floating point tensors, got {dtype}")
    x1, x2 = fl.broadcast_tensors(x1.to(dtype), x2.to(dtype))
    one, two = (_length(x, dim, eps) for x in (x1, x2))
    if dtype == fl.float16 and eps < fl.finfo(dtype).smallest_normal:
        return ((x1 / one) * (x2 / two)).sum(dim)  # `eps` is 0 in half, and vectors without elements are orthogonal
    # Divided by one length before, the products cannot overflow; by the other after, it costs no pass.
    return ((x1 / one) * x2).sum(dim) / two.squeeze(dim)


def _length(x: fl.Tensor, dim: int, least: float) -> fl.Tensor:
    """Of vectors, at least `least`, which does not touch the gradient."""
    norm = fl.linalg.vector_norm(x, 2, dim, True)
    return norm + (norm.clamp_min(least) - norm).detach()


@composite("pairwise_distance(Tensor x1, Tensor x2, float p=2, float eps=1e-06, bool keepdim=False) -> Tensor", method=False)  # fmt: skip
@composite("nn_pairwise_distance")
def pairwise_distance(
    x1: fl.Tensor, x2: fl.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> fl.Tensor:
    return fl.linalg.vector_norm(x1 - x2 + eps, p, -1 if max(x1.dim(), x2.dim()) else (), keepdim)


@composite("pdist(Tensor self, float p=2) -> Tensor", method=False)
@composite("nn_pdist")
def pdist(input: fl.Tensor, p: float = 2) -> fl.Tensor:
    if input.dim() != 2:
        raise RuntimeError(f"[pdist] expected a matrix, got {input.dim()} dimensions")
    if not input.is_floating_point():
        raise RuntimeError(f"[pdist] expected a floating point tensor, got {input.dtype}")
    if p < 0:
        raise RuntimeError(f"[pdist] expected p >= 0, got {p}")
    n = input.shape[0]
    rows, columns = fl.triu_indices(n, n, 1, device=input.device).unbind(0)
    if input.shape[1] == 0:
        return (input[rows] - input[columns]).sum(1)
    return fl.linalg.vector_norm(input[rows] - input[columns], p, 1)


# ---------------------------------------------------------------- losses


def cosine_elements(input1: fl.Tensor, input2: fl.Tensor, target: fl.Tensor, margin: float) -> fl.Tensor:
    if target.dim() not in (0, 1):
        raise RuntimeError(f"[cosine_embedding_loss] expected a target of 0 or 1 dimensions, got {target.dim()}")
    if input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise RuntimeError(
            f"[cosine_embedding_loss] expected inputs of {target.dim() + 1} dimensions, got {input1.dim()} and {input2.dim()}"
        )
    # Epsilon is under the root, as the loss is defined.
    product = (input1 * input2).sum(-1)
    squares = (input1.square().sum(-1) + 1e-12) * (input2.square().sum(-1) + 1e-12)
    cosine = product / squares.sqrt()
    zeros = fl.zeros_like(cosine)
    return fl.where(target == 1, 1 - cosine, zeros) + fl.where(target == -1, (cosine - margin).clamp_min(0), zeros)


@composite()
def nn_cosine_embedding_loss(
    input1: fl.Tensor,
    input2: fl.Tensor,
    target: fl.Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    return reduced("cosine_embedding_loss", cosine_elements(input1, input2, target, margin), reduction)


def triplet_elements(
    anchor: fl.Tensor,
    positive: fl.Tensor,
    negative: fl.Tensor,
    margin: float,
    swap: bool,
    distance: Callable[[fl.Tensor, fl.Tensor], fl.Tensor],
) -> fl.Tensor:
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "[triplet_margin_loss] expected tensors of one number of dimensions, got "
            f"{anchor.dim()}, {positive.dim()} and {negative.dim()}"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = fl.minimum(far, distance(positive, negative))
    return (margin + near - far).clamp_min(0)


@composite()
def nn_triplet_margin_loss(
    anchor: fl.Tensor,
    positive: fl.Tensor,
    negative: fl.Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction = legacy_reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"[triplet_margin_loss] expected margin > 0, got {margin}")

    def distance(a: fl.Tensor, b: fl.Tensor) -> fl.Tensor:
        return fl.pairwise_distance(a, b, p, eps)

    return reduced(
        "triplet_margin_loss", triplet_elements(anchor, positive, negative, margin, swap, distance), reduction
    )


@composite(module="nn.functional")
def triplet_margin_with_distance_loss(
    anchor: fl.Tensor,
    positive: fl.Tensor,
    negative: fl.Tensor,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> fl.Tensor:
    reduction_number("triplet_margin_with_distance_loss", reduction)
    if margin <= 0:
        raise ValueError(f"[triplet_margin_with_distance_loss] expected margin > 0, got {margin}")
    distance = fl.pairwise_distance if distance_function is None else distance_function
    loss = triplet_elements(anchor, positive, negative, margin, swap, distance)
    return reduced("triplet_margin_with_distance_loss", loss, reduction)


# ---------------------------------------------------------------- CTC

native("_ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, bool zero_infinity=False) -> (Tensor, Tensor)", module="")  # fmt: skip
native("_ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, Tensor loss, Tensor log_alpha, int blank=0, bool zero_infinity=False) -> Tensor")  # fmt: skip


def _ctc_composed(
    log_probs: fl.Tensor, targets: fl.Tensor, input_lengths: Any, target_lengths: Any, blank: int
) -> fl.Tensor:
    """The loss of each sample as a recursion over time in ops; impossible alignments have a very large loss."""
    steps, batch, _ = log_probs.shape
    longest = max(target_lengths, default=0)
    states = 2 * longest + 1
    device = log_probs.device
    labels = fl.full((batch, states), blank, dtype=fl.int64, device=device)
    start = 0
    for n, length in enumerate(target_lengths):
        row = targets[start : start + length] if targets.dim() == 1 else targets[n, :length]
        start += length
        if length:
            labels[n, 1 : 2 * length : 2] = row.to(fl.int64)
    never = -1e30
    # A label may follow another directly, without the blank between them, when the two differ.
    skip = fl.zeros(batch, states, dtype=fl.bool, device=device)
    if states > 2:
        skip[:, 2:] = labels[:, 2:] != labels[:, :-2]
    first = fl.zeros(batch, states, dtype=fl.bool, device=device)
    first[:, :2] = True
    alpha = log_probs[0].gather(1, labels).masked_fill(first.logical_not(), never)
    lengths = fl.tensor(list(input_lengths), device=device)
    for t in range(1, steps):
        one = fl.constant_pad_nd(alpha[:, :-1], [1, 0], never)
        two = fl.constant_pad_nd(alpha[:, :-2], [2, 0], never)[:, :states].masked_fill(skip.logical_not(), never)
        moved = fl.stack([alpha, one, two]).logsumexp(0) + log_probs[t].gather(1, labels)
        alpha = fl.where((lengths > t).unsqueeze(1), moved, alpha)
    last = fl.tensor([[2 * n, max(2 * n - 1, 0)] for n in target_lengths], device=device)
    ends = alpha.gather(1, last)
    single = fl.tensor([[False, n == 0] for n in target_lengths], device=device)
    return -ends.masked_fill(single, never).logsumexp(1)


def ctc_loss_gradient(
    grad: fl.Tensor,
    log_probs: fl.Tensor,
    targets: fl.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    loss: fl.Tensor,
    log_alpha: fl.Tensor,
    blank: int,
    zero_infinity: bool,
) -> fl.Tensor:
    """By operators that have derivatives themselves."""
    from flambeau.ops.retrace import retrace

    lengths = fl.tensor(list(input_lengths), device=log_probs.device)
    possible = loss != float("inf")
    grad = fl.where(possible & (lengths > 0), grad.reshape(-1), fl.zeros_like(loss))
    if not log_probs.numel():
        return fl.zeros_like(log_probs)

    def compose(x: fl.Tensor) -> fl.Tensor:
        return _ctc_composed(x, targets, input_lengths, target_lengths, blank)

    (gradient,) = retrace(compose, (log_probs,), (True,), grad)[:1]
    # As PyTorch has it, the gradient is the one of the scores of which log_probs is the log-softmax: a term that
    # log_softmax takes away again, so that it shows only where log_probs is a leaf.
    inside = fl.arange(log_probs.shape[0], device=log_probs.device).unsqueeze(1) < lengths
    gradient = gradient + log_probs.exp() * fl.where(inside, grad, fl.zeros_like(grad)).unsqueeze(2)
    if zero_infinity:
        return gradient
    return gradient.masked_fill((inside & possible.logical_not()).unsqueeze(2), float("nan"))


@vjp("_ctc_loss")
def ctc_loss_vjp(
    g0: fl.Tensor,
    log_probs: fl.Tensor,
    targets: fl.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
    out0: fl.Tensor,
    out1: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    gradient = ctc_loss_gradient if fl.is_grad_enabled() else fl._ops._ctc_loss_backward
    saved = out0.detach(), out1.detach()
    return gradient(g0, log_probs, targets, input_lengths, target_lengths, *saved, blank, zero_infinity), None


def _lengths(name: str, lengths: Any) -> Any:
    """The lengths of sequences as a list; a tensor of them may be a number alone."""
    if not isinstance(lengths, fl.Tensor):
        return lengths
    if lengths.is_floating_point() or lengths.is_complex():
        raise RuntimeError(f"[ctc_loss] expected {name} of integers, got {lengths.dtype}: {name} must be integral")
    return lengths.reshape(-1).tolist()


@composite()
def nn_ctc_loss(
    log_probs: fl.Tensor,
    targets: fl.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> fl.Tensor:
    reduction_number("ctc_loss", reduction)
    input_lengths = _lengths("input_lengths", input_lengths)
    target_lengths = _lengths("target_lengths", target_lengths)
    if log_probs.numel() == 0:
        raise RuntimeError(
            f"[ctc_loss] expected log_probs with elements, got shape {tuple(log_probs.shape)}: log_probs tensor must not be empty"
        )
    batched = log_probs.dim() == 3
    if log_probs.dim() == 2:
        log_probs = log_probs.unsqueeze(1)
    loss = fl._ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)[0]
    if zero_infinity:
        loss = fl.where(loss == float("inf"), fl.zeros_like(loss), loss)
    if reduction == "mean":
        lengths = fl.tensor(target_lengths, dtype=loss.dtype, device=loss.device).clamp_min(1)
        return (loss / lengths).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if batched else loss.squeeze(0)


# ---------------------------------------------------------------- the top-level functions, with numbered reductions


def named(reduction: int) -> str:
    if reduction not in (0, 1, 2):
        raise RuntimeError(f"[loss] expected reduction 0 (none), 1 (mean) or 2 (sum), got {reduction}")
    return REDUCTIONS[reduction]


@composite()
def ctc_loss(
    log_probs: fl.Tensor,
    targets: fl.Tensor,
    input_lengths: list[int],
    target_lengths: list[int],
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> fl.Tensor:
    return nn_ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, named(reduction), zero_infinity)


@composite(method=False)
def kl_div(self: fl.Tensor, target: fl.Tensor, reduction: int = 1, *, log_target: bool = False) -> fl.Tensor:
    return divergence(self, target, named(reduction), log_target)


@composite(method=False)
def binary_cross_entropy_with_logits(
    self: fl.Tensor,
    target: fl.Tensor,
    weight: fl.Tensor | None = None,
    pos_weight: fl.Tensor | None = None,
    reduction: int = 1,
) -> fl.Tensor:
    return logits_loss(self, target, weight, pos_weight, named(reduction))


@composite()
def poisson_nll_loss(
    input: fl.Tensor, target: fl.Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> fl.Tensor:
    return reduced("poisson_nll_loss", poisson_elements(input, target, log_input, full, eps), named(reduction))


@composite(method=False)
def hinge_embedding_loss(self: fl.Tensor, target: fl.Tensor, margin: float = 1.0, reduction: int = 1) -> fl.Tensor:
    return reduced("hinge_embedding_loss", hinge_elements(self, target, margin), named(reduction))


@composite()
def margin_ranking_loss(
    input1: fl.Tensor, input2: fl.Tensor, target: fl.Tensor, margin: float = 0.0, reduction: int = 1
) -> fl.Tensor:
    return reduced("margin_ranking_loss", ranking_elements(input1, input2, target, margin), named(reduction))


@composite()
def cosine_embedding_loss(
    input1: fl.Tensor, input2: fl.Tensor, target: fl.Tensor, margin: float = 0.0, reduction: int = 1
) -> fl.Tensor:
    return reduced("cosine_embedding_loss", cosine_elements(input1, input2, target, margin), named(reduction))


@composite()
def triplet_margin_loss(
    anchor: fl.Tensor,
    positive: fl.Tensor,
    negative: fl.Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 1,
) -> fl.Tensor:
    return nn_triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, None, None, named(reduction))


# ---------------------------------------------------------------- what passes know of these operators

autocast(
    "float32",
    "binary_cross_entropy_with_logits cosine_embedding_loss hinge_embedding_loss kl_div margin_ranking_loss "
    "nn_cosine_embedding_loss nn_triplet_margin_loss poisson_nll_loss triplet_margin_loss",
)
autocast("float32", "cosine_similarity nn_cosine_similarity nn_pdist pdist", on="accelerator")
autocast("float32", "ctc_loss nn_ctc_loss", on="cpu")
