"""Sharding rules of losses over classes: samples are independent."""

from __future__ import annotations

from typing import Any

from flambeau.ops.rules import divided, sharding
from flambeau.ops.sharding import Call, Decision, Partial, R, Shard

NONE, MEAN, SUM = range(3)


def _samples(call: Call) -> Shard | None:
    """The first dimension, where scores or classes are divided along it and the batch has one."""
    batched = call.tensors[0].dim() > 1
    return Shard(0) if batched and Shard(0) in call.placements[:2] else None


@sharding("_cross_entropy_forward", "_nll_loss_forward")
def forward(call: Call) -> Decision | None:
    """The loss, the weight of all samples and, of scores, the logarithm of their sums. A mean over samples of which some may not
    count is not the mean of those of parts."""
    samples, reduction = _samples(call), call.arguments["reduction"]
    if samples is None or reduction not in (NONE, SUM):
        return None
    loss = samples if reduction == NONE else Partial()
    needed = [samples, samples, *[R] * (len(call.tensors) - 2)]
    return needed, [loss, Partial(), *[samples] * (len(call.outputs) - 2)]


@divided("_cross_entropy_forward", "_nll_loss_forward")
def mean_of_sums(func: Any, scores: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    """The mean by the sum and the weight of all samples, which are sums of those of parts."""
    if reduction != MEAN or scores.dim() < 2:
        return NotImplemented
    loss, total, *rest = func(scores, target, weight, SUM, ignore_index)
    return (loss / total, total, *rest)


@sharding("_cross_entropy_backward")
def backward(call: Call) -> Decision | None:
    """Arguments: the gradient, scores, classes, weights if any, the weight of all samples and logarithms of sums."""
    if call.tensors[1].dim() < 2 or Shard(0) not in call.placements[1:3]:
        return None
    samples = Shard(0)
    gradient = samples if call.arguments["reduction"] == NONE else R
    return [gradient, samples, samples, *[R] * (len(call.tensors) - 4), samples], [samples]


@sharding("_nll_loss_backward")
def nll_backward(call: Call) -> Decision | None:
    if len(call.arguments["sizes"]) < 2 or call.placements[1] != Shard(0):
        return None
    gradient = Shard(0) if call.arguments["reduction"] == NONE else R
    return [gradient, Shard(0), *[R] * (len(call.tensors) - 2)], [Shard(0)]
