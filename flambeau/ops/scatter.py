"""Gather and scatter: an index for each element, along one dimension. The kernels are in csrc/cpu/scatter.cpp."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native

native("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor", out=True)
native("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", inplace=True, out=True)
native("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", inplace=True, out=True)
native(
    "scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor", inplace=True, out=True
)
native(
    "scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
    inplace=True,
    out=True,
)
native("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", inplace=True, out=True)
native(
    "scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
    inplace=True,
    out=True,
)


# ---------------------------------------------------------------- a view replaced, in a new tensor


def _replaced(op: str, self: fl.Tensor, src: fl.Tensor, view: fl.Tensor) -> None:
    if src.shape != view.shape:
        raise RuntimeError(f"[{op}] expected a source of shape {tuple(view.shape)}, got {tuple(src.shape)}")
    view.copy_(src)


@composite("select_scatter(Tensor self, Tensor src, int dim, int index) -> Tensor", out=True)
def select_scatter(self: fl.Tensor, src: fl.Tensor, dim: int, index: int) -> fl.Tensor:
    out = self.clone()
    _replaced("select_scatter", self, src, out.select(dim, index))
    return out


@composite(
    "slice_scatter(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor", out=True
)
def slice_scatter(
    self: fl.Tensor, src: fl.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> fl.Tensor:
    out = self.clone()
    _replaced("slice_scatter", self, src, fl._ops.slice(out, dim, start, end, step))
    return out


@composite("diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor", out=True)
def diagonal_scatter(self: fl.Tensor, src: fl.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> fl.Tensor:
    out = self.clone()
    _replaced("diagonal_scatter", self, src, out.diagonal(offset, dim1, dim2))
    return out


@composite(
    "as_strided_scatter(Tensor self, Tensor src, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    out=True,
)
def as_strided_scatter(
    self: fl.Tensor, src: fl.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> fl.Tensor:
    out = self.clone()
    _replaced("as_strided_scatter", self, src, out.as_strided(size, stride, storage_offset))
    return out
