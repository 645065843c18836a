"""Losses of sequences in terms of primitives. Part of the table in `definitions.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops import distance
from flambeau.ops.definitions import TABLE, decompose

# ---------------------------------------------------------------- CTC


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


@decompose("_ctc_loss")
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
    made = fl._ctc_loss(shape, like, input_lengths, target_lengths, blank, zero_infinity)[1]  # checks, and sizes
    batch, steps, states = made.shape
    device, x, never = log_probs.device, log_probs.double(), float("-inf")
    labels = _labels(targets, target_lengths, blank, states)
    seen = fl.tensor(list(input_lengths), device=device).unsqueeze(1)
    lengths = fl.tensor(list(target_lengths), device=device).unsqueeze(1)
    inside = fl.arange(states, device=device).unsqueeze(0) <= 2 * lengths
    # A label may follow another directly, without the blank between them, when the two differ.
    skip = fl.zeros_like(inside)
    skip[:, 2:] = labels[:, 2:] != labels[:, :-2]
    outside = fl.full((batch, states), never, dtype=fl.float64, device=device)
    begins = inside & (fl.arange(states, device=device) < 2)
    emitted = x.gather(2, labels.unsqueeze(0).expand(steps, -1, -1)) if steps else x
    rows = []
    for t in range(steps):
        if t == 0:
            alpha = fl.where(begins, emitted[0], outside)
        else:
            before = rows[-1]
            one = fl.constant_pad_nd(before, [1, 0], never)[:, :states]
            two = fl.where(skip, fl.constant_pad_nd(before, [2, 0], never)[:, :states], outside)
            alpha = fl.where(inside, fl.stack([before, one, two]).logsumexp(0) + emitted[t], outside)
        rows.append(fl.where(seen > t, alpha, outside))
    log_alpha = fl.stack(rows, 1) if rows else outside.new_empty(made.shape)
    none = fl.where(lengths > 0, fl.full_like(outside[:, :1], float("inf")), fl.zeros_like(outside[:, :1])).squeeze(1)
    if not rows:
        return none.to(log_probs.dtype), log_alpha.to(log_probs.dtype)
    last = log_alpha.gather(1, (seen - 1).clamp_min(0).unsqueeze(2).expand(-1, 1, states)).squeeze(1)
    end, before_end = last.gather(1, 2 * lengths), last.gather(1, (2 * lengths - 1).clamp_min(0))
    before_end = fl.where(lengths > 0, before_end, fl.full_like(before_end, never))
    loss = -fl.cat([end, before_end], 1).logsumexp(1)
    loss = fl.where(seen.squeeze(1) > 0, loss, none)
    return loss.to(log_probs.dtype), log_alpha.to(log_probs.dtype)


TABLE["_ctc_loss_backward"] = distance.ctc_loss_gradient
