"""Definitions of distances and sequence losses in terms of other operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.backends import widest_float
from flambeau.ops.rules import definition

NEVER = float("-inf")


def _labels(targets: Any, target_lengths: Sequence[int], blank: int, states: int) -> Any:
    """The labels of each sample with blanks between them, and blanks after its end."""
    batch, longest = len(target_lengths), (states - 1) // 2
    if longest == 0:
        return fl.full((batch, states), blank, dtype=fl.int64, device=targets.device)
    lengths = fl.tensor(list(target_lengths), device=targets.device).unsqueeze(1)
    places = fl.arange(longest, device=targets.device).unsqueeze(0)
    inside = places < lengths
    if targets.dim() == 1:
        at = fl.where(inside, lengths.cumsum(0) - lengths + places, fl.zeros_like(places))
        rows = targets.long().index_select(0, at.reshape(-1)).reshape(batch, longest)
    else:
        rows = targets.long()[:, :longest]
    rows = fl.where(inside, rows, fl.full_like(rows, blank))
    between = fl.full_like(rows, blank)
    return fl.cat([fl.stack([between, rows], 2).reshape(batch, -1), between[:, :1]], 1)


class _States:
    """What both passes over a batch know of its states: labels, which may be passed over, what they weigh at each time."""

    def __init__(
        self, log_probs: Any, targets: Any, inputs: Sequence[int], labels: Sequence[int], blank: int, count: int
    ):
        steps, batch, _ = log_probs.shape
        device, wide = log_probs.device, widest_float(log_probs.device)
        x = log_probs.to(wide)
        self.labels = _labels(targets, labels, blank, count)
        self.seen = fl.tensor(list(inputs), device=device).unsqueeze(1)
        self.lengths = fl.tensor(list(labels), device=device).unsqueeze(1)
        self.places = fl.arange(count, device=device).unsqueeze(0)
        self.inside = self.places <= 2 * self.lengths
        # A label may follow another directly, without the blank between them, when the two differ.
        self.skip = fl.zeros_like(self.inside)
        self.skip[:, 2:] = self.labels[:, 2:] != self.labels[:, :-2]
        self.outside = fl.full((batch, count), NEVER, dtype=wide, device=device)
        self.emitted = x.gather(2, self.labels.unsqueeze(0).expand(steps, -1, -1)) if steps else x

    def entered(self, ways: list[Any], t: int) -> Any:
        return fl.where(self.inside, fl.stack(ways).logsumexp(0) + self.emitted[t], self.outside)


@definition("_ctc_loss")
def _ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """The losses, and the logarithms of what the labels up to each state weigh at each time."""
    shape = fl.empty_like(log_probs, device="meta")
    like = fl.empty(targets.shape, dtype=targets.dtype, device="meta")
    alpha_shape = fl._ctc_loss(shape, like, input_lengths, target_lengths, blank, zero_infinity)[1]  # checks, and sizes
    steps, count = alpha_shape.shape[1:]
    states = _States(log_probs, targets, input_lengths, target_lengths, blank, count)
    seen, lengths, outside = states.seen, states.lengths, states.outside
    begins = states.inside & (states.places < 2)
    rows: list[Any] = []
    for t in range(steps):
        if t == 0:
            alpha = fl.where(begins, states.emitted[0], outside)
        else:
            one = fl.constant_pad_nd(rows[-1], [1, 0], NEVER)[:, :count]
            two = fl.where(states.skip, fl.constant_pad_nd(rows[-1], [2, 0], NEVER)[:, :count], outside)
            alpha = states.entered([rows[-1], one, two], t)
        rows.append(fl.where(seen > t, alpha, outside))
    log_alpha = fl.stack(rows, 1) if rows else outside.new_empty(alpha_shape.shape)
    none = fl.where(lengths > 0, fl.full_like(outside[:, :1], float("inf")), fl.zeros_like(outside[:, :1])).squeeze(1)
    if not rows:
        return none.to(log_probs.dtype), log_alpha.to(log_probs.dtype)
    last = log_alpha.gather(1, (seen - 1).clamp_min(0).unsqueeze(2).expand(-1, 1, count)).squeeze(1)
    end, before_end = last.gather(1, 2 * lengths), last.gather(1, (2 * lengths - 1).clamp_min(0))
    before_end = fl.where(lengths > 0, before_end, fl.full_like(before_end, NEVER))
    loss = -fl.cat([end, before_end], 1).logsumexp(1)
    loss = fl.where(seen.squeeze(1) > 0, loss, none)
    return loss.to(log_probs.dtype), log_alpha.to(log_probs.dtype)


@definition("_ctc_loss_backward")
def _ctc_loss_backward(
    grad: Any,
    log_probs: Any,
    targets: Any,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    loss: Any,
    log_alpha: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """From how likely each label is at each time: what comes up to it, and what goes on from it."""
    steps, batch, classes = log_probs.shape
    if not log_probs.numel():
        return log_probs.clone()
    states = _States(log_probs, targets, input_lengths, target_lengths, blank, log_alpha.shape[2])
    ends = states.inside & (states.places >= 2 * states.lengths - 1)
    rows: list[Any] = []
    for t in reversed(range(steps)):
        beta = states.outside
        if rows:
            one = fl.constant_pad_nd(rows[-1], [0, 1], NEVER)[:, 1:]
            two = fl.constant_pad_nd(fl.where(states.skip, rows[-1], states.outside), [0, 2], NEVER)[:, 2:]
            beta = fl.where(states.seen > t + 1, states.entered([rows[-1], one, two], t), beta)
        rows.append(fl.where(ends & (states.seen == t + 1), states.emitted[t], beta))
    wide = widest_float(log_probs.device)
    sums = log_alpha.to(wide) + fl.stack(rows[::-1], 1)
    likely = (sums - states.emitted.transpose(0, 1) + loss.to(wide).reshape(-1, 1, 1)).exp()
    likely = fl.where(sums == NEVER, fl.zeros_like(likely), likely)
    taken = likely.new_zeros([batch, steps, classes])
    taken = taken.scatter_add(2, states.labels.unsqueeze(1).expand(-1, steps, -1), likely)
    possible = loss != float("inf")
    never = fl.full_like(grad, 0.0 if zero_infinity else float("nan")).reshape(-1)
    scale = fl.where(possible, grad.reshape(-1), never).unsqueeze(1)
    gradient = (log_probs.to(wide).exp() - taken.transpose(0, 1)) * scale
    inside = fl.arange(steps, device=log_probs.device).unsqueeze(1) < states.seen.squeeze(1)
    return fl.where(inside.unsqueeze(2), gradient, fl.zeros_like(gradient)).to(log_probs.dtype)
