"""Sparse tensors: how they are put together and taken apart, and the kernels on their parts.

A sparse tensor is a shape around strided parts (`csrc/core/sparse.h`). The operators here are all that knows of both
sides; what other operators do with sparse tensors is written in `flambeau/sparse/`, in terms of the parts, and is
differentiated through them.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.record import composite, native, tag, vjp

native("_sparse_coo(Tensor indices, Tensor values, int[] size, bool is_coalesced=False) -> Tensor")
native(
    "_sparse_compressed(Tensor starts, Tensor indices, Tensor values, int[] size, bool columns=False, bool blocks=False) -> "
    "Tensor"
)
native("_sparse_values(Tensor self) -> Tensor", method=False)
native("_sparse_indices(Tensor self) -> Tensor", method=False, tags=("no_grad",))
native("_sparse_starts(Tensor self) -> Tensor", method=False, tags=("no_grad",))
native("_sparse_is_coalesced(Tensor self) -> bool", method=False, tags=("no_grad",))
native("_sparse_assign_(Tensor(!) self, Tensor source) -> Tensor", method=False)
native("_sparse_coalesced_(Tensor(!) self, bool is_coalesced) -> Tensor", method=False, tags=("no_grad",))

# The distinct columns of indices in order, and for each column the number of its place among them.
native("_sparse_groups(Tensor indices, int[] size) -> (Tensor, Tensor)", tags=("no_grad",))
# The product of the matrix of `rows` rows with values at (row, column) and a dense matrix.
native("_sparse_mm(Tensor row, Tensor column, Tensor values, Tensor dense, int rows) -> Tensor")
# For each pair (row, column) the product of that row of a and that row of b.
native("_sparse_dots(Tensor row, Tensor column, Tensor a, Tensor b) -> Tensor")


@composite("_sparse_to_dense", method=False)
def sparse_to_dense(self: fl.Tensor) -> fl.Tensor:
    from flambeau.sparse.construction import to_dense

    return to_dense(self)


@composite("_sparse_zeros(int[] size, ScalarType dtype, Layout layout, Device device) -> Tensor", method=False)
def sparse_zeros(size: Any, dtype: Any, layout: Any, device: Any) -> fl.Tensor:
    from flambeau.sparse.factories import zeros

    return zeros(size, dtype, layout, device)


@vjp("_sparse_coo")
def sparse_coo_vjp(g: fl.Tensor, indices: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    from flambeau.sparse.construction import gather

    return None, gather(g, indices)


@vjp("_sparse_compressed")
def sparse_compressed_vjp(
    g: fl.Tensor, starts: fl.Tensor, indices: fl.Tensor, values: fl.Tensor, columns: Any, blocks: Any
) -> tuple[fl.Tensor | None, ...]:
    from flambeau.sparse.construction import compressed_coordinates, gather, stored_values

    block = values.shape[indices.dim() : indices.dim() + 2] if blocks else ()
    places = compressed_coordinates(starts, indices, block, columns)
    return None, None, stored_values(gather(g, places), indices.shape, block)


@vjp("_sparse_values")
def sparse_values_vjp(g: fl.Tensor, self: fl.Tensor) -> fl.Tensor:
    from flambeau.sparse.construction import gradient_of_values

    return gradient_of_values(self, g)


@vjp("_sparse_mm")
def sparse_mm_vjp(
    g: fl.Tensor, row: fl.Tensor, column: fl.Tensor, values: fl.Tensor, dense: fl.Tensor, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    of_values = fl._ops._sparse_dots(row, column, g, dense.conj()) if needs[2] else None
    of_dense = fl._ops._sparse_mm(column, row, values.conj(), g, dense.shape[0]) if needs[3] else None
    return None, None, of_values, of_dense


@vjp("_sparse_dots")
def sparse_dots_vjp(
    g: fl.Tensor, row: fl.Tensor, column: fl.Tensor, a: fl.Tensor, b: fl.Tensor, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    of_a = fl._ops._sparse_mm(row, column, g, b.conj(), a.shape[0]) if needs[2] else None
    of_b = fl._ops._sparse_mm(column, row, g, a.conj(), b.shape[0]) if needs[3] else None
    return None, None, of_a, of_b


# ---------------------------------------------------------------- what passes know of these operators

tag("data_dependent", "_sparse_groups")
tag("mixed_devices", "_sparse_assign_")
tag(
    "sparse",
    "_sparse_assign_ _sparse_coalesced_ _sparse_compressed _sparse_coo _sparse_dots _sparse_groups "
    "_sparse_indices _sparse_is_coalesced _sparse_mm _sparse_starts _sparse_to_dense _sparse_values _sparse_zeros",
)
