"""Definitions of embedding tables in terms of other operators."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.backends import widest_float
from flambeau.ops.rules import definition


@definition("embedding")
def embedding(weight: Any, indices: Any, *_: Any, **__: Any) -> Any:
    return fl.index_select(weight, 0, indices.reshape(-1)).reshape([*indices.shape, weight.shape[1]])


@definition("embedding_renorm_")
def embedding_renorm_(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    if self.dim() != 2:
        raise RuntimeError(f"[embedding_renorm_] expected a weight of 2 dimensions, got {tuple(self.shape)}")
    at = indices.reshape(-1).to(fl.int64)
    rows = fl.index_select(self, 0, at)
    wide = rows.to(widest_float(rows.device))
    size = fl.linalg.vector_norm(wide, norm_type, 1, keepdim=True)
    scaled = (wide * (max_norm / (size + 1e-7))).to(self.dtype)
    return self.index_copy_(0, at, fl.where(size > max_norm, scaled, rows))


@definition("_embedding_bag")
def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    def shape(t: Any) -> Any:
        return None if t is None else fl.empty(t.shape, dtype=t.dtype, device="meta")

    fl._embedding_bag(  # checks
        shape(weight), shape(indices), shape(offsets), scale_grad_by_freq, mode, sparse, shape(per_sample_weights),
        include_last_offset, padding_idx,
    )  # fmt: skip
    count, bags = indices.shape[0], offsets.shape[0] - include_last_offset
    index, starts = indices.to(fl.int64), offsets.to(fl.int64)
    options = {"dtype": fl.int64, "device": weight.device}
    marks = fl.scatter_add(fl.zeros(count + 1, **options), 0, starts, fl.ones_like(starts))
    bag = fl.cumsum(marks, 0).narrow(0, 0, count) - 1
    member = fl.logical_and(index != padding_idx, bag < bags)
    # What belongs to no bag is added to one more, which is dropped.
    own = fl.where(member, bag, bags)
    sizes = fl.scatter_add(fl.zeros(bags + 1, **options), 0, own, fl.ones_like(own)).narrow(0, 0, bags)
    wide = fl.float64 if weight.dtype is fl.float64 else fl.float32
    rows = fl.index_select(weight, 0, index).to(wide)
    if mode == 2:
        values, best = _bag_maxima(rows, own, index, bags)
        return values.to(weight.dtype), bag, sizes, best
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(wide).unsqueeze(1)
    out = fl.zeros(bags + 1, weight.shape[1], dtype=wide, device=weight.device)
    out = fl.index_add(out, 0, own, rows).narrow(0, 0, bags)
    if mode == 1:
        out = out / sizes.clamp(min=1).unsqueeze(1)
    return out.to(weight.dtype), bag, sizes, fl.zeros(0, **options)


def _bag_maxima(rows: Any, own: Any, index: Any, bags: int) -> Any:
    """The largest element of each bag and column, and the row of the table it is from; both 0 for an empty bag."""
    count, width = rows.shape
    where = own.unsqueeze(1).expand(count, width)
    blank = fl.zeros(bags + 1, width, dtype=rows.dtype, device=rows.device)
    most = fl.scatter_reduce(blank, 0, where, rows, "amax", include_self=False)
    place = fl.arange(count, device=rows.device).unsqueeze(1)
    place = fl.where(rows == fl.gather(most, 0, where), place, count)
    none = fl.full((bags + 1, width), count, dtype=fl.int64, device=rows.device)
    first = fl.scatter_reduce(none, 0, where, place, "amin").narrow(0, 0, bags)
    ids = fl.cat([index, fl.zeros(1, dtype=fl.int64, device=index.device)])
    return most.narrow(0, 0, bags), fl.gather(ids, 0, first.reshape(-1)).reshape(bags, width)
