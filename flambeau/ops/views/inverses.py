"""What a write to a view means for the whole: the base with `value` where the view is.

Rules take the base, the value and arguments of the view by name; `piece` is the number of the one that was written, of views that return
several.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import inverse

Whole = fl.Tensor


@inverse("alias", "detach")
def alias(base: Whole, value: Whole) -> Whole:
    return value


@inverse("as_strided")
def as_strided(base: Whole, value: Whole, size: Any, stride: Any, storage_offset: Any) -> Whole:
    return fl.as_strided_scatter(base, value, size, stride, storage_offset)


@inverse("diagonal")
def diagonal(base: Whole, value: Whole, offset: int, dim1: int, dim2: int) -> Whole:
    return fl.diagonal_scatter(base, value, offset, dim1, dim2)


@inverse("permute")
def permute(base: Whole, value: Whole, dims: Any) -> Whole:
    places = [dim % base.ndim for dim in dims]
    return value.permute([places.index(dim) for dim in range(base.ndim)])


@inverse("transpose")
def transpose(base: Whole, value: Whole, dim0: int, dim1: int) -> Whole:
    return value.transpose(dim0, dim1)


@inverse("select")
def select(base: Whole, value: Whole, dim: int, index: int) -> Whole:
    return fl.select_scatter(base, value, dim, index)


@inverse("slice")
def slice(base: Whole, value: Whole, dim: int, start: Any, end: Any, step: int) -> Whole:
    return fl.slice_scatter(base, value, dim, start, end, step)


@inverse("split.Tensor")
def split(base: Whole, value: Whole, split_size: int, dim: int, piece: int) -> Whole:
    return fl.slice_scatter(base, value, dim, piece * split_size, (piece + 1) * split_size)


@inverse("split.sizes", "split_with_sizes")
def split_with_sizes(base: Whole, value: Whole, split_sizes: Any, dim: int, piece: int) -> Whole:
    start = sum(split_sizes[:piece])
    return fl.slice_scatter(base, value, dim, start, start + split_sizes[piece])


@inverse("unbind.int")
def unbind(base: Whole, value: Whole, dim: int, piece: int) -> Whole:
    return fl.select_scatter(base, value, dim, piece)


@inverse("view", "squeeze", "squeeze.dim", "squeeze.dims", "unsqueeze")
def view(base: Whole, value: Whole) -> Whole:
    return value.reshape(base.shape)


@inverse("view.dtype")
def view_dtype(base: Whole, value: Whole) -> Whole:
    return value.view(base.dtype)


@inverse("view_as_complex")
def view_as_complex(base: Whole, value: Whole) -> Whole:
    return fl.view_as_real(value)


@inverse("view_as_real")
def view_as_real(base: Whole, value: Whole) -> Whole:
    return fl.view_as_complex(value)
