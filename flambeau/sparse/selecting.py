"""Some slices of a sparse tensor, in any order."""

from __future__ import annotations

from collections.abc import Sequence

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.sparse.construction import coalesce, parts, to_coo
from flambeau.sparse.kernels import kernel, wrapped


@kernel("index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    self = to_coo(self)
    dim = wrapped("index_select", dim, self.dim())
    indices, values = parts(self)
    split = indices.shape[0]
    size = [*self.shape[:dim], index.numel(), *self.shape[dim + 1 :]]
    if dim >= split:
        return _ops._sparse_coo(indices, values.index_select(dim - split + 1, index), size, self.is_coalesced())
    length = self.shape[dim]
    outside = index[(index < -length) | (index >= length)]
    if outside.numel():
        raise IndexError(
            f"[index_select] expected indices in [{-length}, {length}), got {int(outside[0])}: index_select(): index contains "
            f"{int(outside[0])} that is out of range for tensor of size {list(self.shape)} at dimension {dim}"
        )
    index = fl.where(index < 0, index + length, index)
    # The elements sorted by their place along dim; each index takes a run of them.
    order = fl.argsort(indices[dim], stable=True)
    places = indices[dim][order]
    first, last = fl.searchsorted(places, index.long()), fl.searchsorted(places, index.long(), right=True)
    lengths = last - first
    target = fl.repeat_interleave(fl.arange(index.numel(), device=index.device), lengths)
    begin = lengths.cumsum(0) - lengths
    taken = order[fl.arange(target.shape[0], device=index.device) - begin[target] + first[target]]
    rows = indices[:, taken]
    rows = fl.cat([rows[:dim], target.unsqueeze(0), rows[dim + 1 :]])
    return _ops._sparse_coo(rows, values.index_select(0, taken), size)


@kernel("index.Tensor")
def index(self: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    indexed = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    if len(indexed) == 1 and indexed[0][1].dim() == 1:
        dim, places = indexed[0]
        places = places.nonzero().squeeze(1) if places.dtype == _C.bool else places
        return self.index_select(dim, fl.where(places < 0, places + self.shape[dim], places))
    raise NotImplementedError("[index] expected one vector of indices for a sparse tensor, got others")


@kernel("narrow_copy")
def narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    if not 0 <= dim < self.dim():
        raise RuntimeError(f"[narrow_copy] expected a dimension in [0, {self.dim() - 1}] of a sparse tensor, got {dim}")
    start = start + self.shape[dim] if start < 0 else start
    if not 0 <= start <= start + length <= self.shape[dim]:
        raise RuntimeError(f"[narrow_copy] expected a range within {self.shape[dim]}, got {start} and {length}")
    chosen = self.index_select(dim, fl.arange(start, start + length, device=self.device))
    return coalesce(chosen) if _ops._sparse_is_coalesced(to_coo(self)) else chosen
