"""Shape rules of sparse tensors."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Int, Ints
from flambeau.ops.rules import shape


@shape("_sparse_mm")
def sparse_mm(values: Geometry, dense: Geometry, rows: Int) -> Ints:
    return rows, dense.sizes[1]


@shape("_sparse_dots")
def sparse_dots(row: Geometry) -> Ints:
    return row.sizes
