"""Sparse tensors in place of larger ones, which repeat their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import _ops
from flambeau._C import Tensor
from flambeau.sparse.construction import parts, to_coo


def broadcast_to(self: Tensor, size: Sequence[int]) -> Tensor:
    """A sparse coordinate tensor of a larger shape. New and repeated dimensions are sparse ones before the dense ones."""
    self = to_coo(self)
    if tuple(self.shape) == tuple(size):
        return self
    indices, values = parts(self)
    split, extra = indices.shape[0], len(size) - self.dim()
    if extra < 0 or any(have not in (1, want) for have, want in zip(self.shape, size[extra:])):
        raise RuntimeError(
            f"[broadcast_to] expected a shape that {tuple(self.shape)} broadcasts to, got {tuple(size)}: it does not broadcast"
        )
    values = values.expand(values.shape[0], *size[extra + split :])
    rows: list[Any] = [None] * extra + [indices[d] if self.shape[d] == size[extra + d] else None for d in range(split)]
    repeated = [d for d, row in enumerate(rows) if row is None]
    if repeated:
        grid = fl.cartesian_prod(*(fl.arange(size[d], device=indices.device) for d in repeated))
        grid = grid.reshape(-1, len(repeated))
        count = indices.shape[1]
        values = values.repeat(grid.shape[0], *([1] * (values.dim() - 1)))
        for place, d in enumerate(repeated):
            rows[d] = grid[:, place].repeat_interleave(count)
        rows = [row if d in repeated else row.repeat(grid.shape[0]) for d, row in enumerate(rows)]
    return _ops._sparse_coo(fl.stack(rows) if rows else indices, values, list(size))


_sparse_broadcast_to = broadcast_to
