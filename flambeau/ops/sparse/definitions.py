"""Definitions of sparse tensors in terms of other operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.reductions.definitions import _unique
from flambeau.ops.rules import definition


@definition("_sparse_groups")
def _sparse_groups(indices: Any, size: Sequence[int]) -> Any:
    keys = fl.zeros(indices.shape[1], dtype=fl.int64, device=indices.device)
    for d, n in enumerate(size):
        row = indices.select(0, d)
        if row.numel() and not (int(fl.amin(row)) >= 0 and int(fl.amax(row)) < n):
            raise RuntimeError(f"[coalesce] expected indices below {n} in dimension {d}, got one outside")
        keys = keys * n + row
    unique_keys, groups, _ = _unique(keys, False)
    rows = []
    for n in reversed(size):
        rows.append(fl.remainder(unique_keys, n) if n else unique_keys)
        unique_keys = fl.div(unique_keys, n, rounding_mode="floor") if n else unique_keys
    unique = fl.stack(rows[::-1]) if rows else indices.narrow(1, 0, min(1, indices.shape[1])).clone()
    return unique, groups


@definition("_sparse_mm")
def _sparse_mm(row: Any, column: Any, values: Any, dense: Any, rows: int) -> Any:
    parts = fl.index_select(dense, 0, column) * values.unsqueeze(1)
    return fl.index_add(fl.zeros(rows, dense.shape[1], dtype=dense.dtype, device=dense.device), 0, row, parts)


@definition("_sparse_dots")
def _sparse_dots(row: Any, column: Any, a: Any, b: Any) -> Any:
    return fl.sum(fl.index_select(a, 0, row) * fl.index_select(b, 0, column), 1, dtype=a.dtype)
