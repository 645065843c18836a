"""Losses of sequences and tables of vectors in terms of primitives. Part of the table in `definitions.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.definitions import decompose

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
    skip[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
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


# ---------------------------------------------------------------- tables of vectors


@decompose("embedding_renorm_")
def embedding_renorm_(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    if self.dim() != 2:
        raise RuntimeError(f"[embedding_renorm_] expected a weight of 2 dimensions, got {tuple(self.shape)}")
    at = indices.reshape(-1)
    rows = self.index_select(0, at).double()
    norm = fl.linalg.vector_norm(rows, norm_type, 1, keepdim=True)
    scaled = fl.where(norm > max_norm, rows * (max_norm / (norm + 1e-7)), rows).to(self.dtype)
    # A row that is named twice is written twice, with the same numbers.
    return self.index_put_([at], scaled)


@decompose("_embedding_bag")
def _embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums, means or maxima of the rows of each bag; the bag of each index, the sizes of bags, and where maxima lie."""

    def shape(t: Any) -> Any:
        return None if t is None else fl.empty(t.shape, dtype=t.dtype, device="meta")

    fl._embedding_bag(  # checks
        shape(weight), shape(indices), shape(offsets), scale_grad_by_freq, mode, sparse, shape(per_sample_weights),
        include_last_offset, padding_idx,
    )  # fmt: skip
    indices, offsets = indices.long(), offsets.long()
    device, count, width = weight.device, indices.shape[0], weight.shape[1]
    bags = offsets.shape[0] - int(include_last_offset)
    starts = offsets[:bags]
    bag_of = (fl.arange(count, device=device).unsqueeze(1) >= starts.unsqueeze(0)).sum(1) - 1
    member = fl.ones_like(indices) if padding_idx < 0 else (indices != padding_idx).long()
    sizes = fl.zeros(bags, dtype=fl.int64, device=device).index_add(0, bag_of, member)
    wide = fl.float64 if weight.dtype is fl.float64 else fl.float32
    rows = weight.index_select(0, indices).to(wide)
    places = bag_of.unsqueeze(1).expand(-1, width)
    if mode != 2:
        factor = member.to(wide) if per_sample_weights is None else member * per_sample_weights.to(wide)
        out = fl.zeros(bags, width, dtype=wide, device=device).scatter_add(0, places, rows * factor.unsqueeze(1))
        if mode == 1:
            out = out / sizes.clamp_min(1).unsqueeze(1)
        return out.to(weight.dtype), bag_of, sizes, indices.new_empty((0,))
    lowest = fl.full((bags, width), float("-inf"), dtype=wide, device=device)
    hidden = (member == 0).unsqueeze(1)
    out = lowest.scatter_reduce(0, places, rows.masked_fill(hidden, float("-inf")), "amax")
    # The first of equal members is the one.
    found = (rows == out.index_select(0, bag_of)) & hidden.logical_not()
    order = fl.where(found, fl.arange(count, device=device).unsqueeze(1).expand(-1, width), fl.full_like(places, count))
    first = fl.full((bags, width), count, dtype=fl.int64, device=device).scatter_reduce(0, places, order, "amin")
    empty = (sizes == 0).unsqueeze(1)
    if count == 0:
        return out.masked_fill(empty, 0).to(weight.dtype), bag_of, sizes, fl.zeros_like(first)
    maxima = indices.index_select(0, first.clamp(0, count - 1).reshape(-1)).reshape(bags, width).masked_fill(empty, 0)
    return out.masked_fill(empty, 0).to(weight.dtype), bag_of, sizes, maxima
