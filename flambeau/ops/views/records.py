"""Views and the ops that reshape: windows on the same storage, written natively once for every device.

Those that may have to copy, or are one of the others in disguise, are native decompositions (csrc/ops/reshape.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import aten, autocast, native, node, tag, vjp

VIEW = ("view",)

native("view(Tensor self, int[] size) -> Tensor", tags=VIEW, function=False)
native("view.dtype(Tensor self, dtype dtype) -> Tensor", tags=("view", "no_grad"), function=False)
native("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor", tags=VIEW)
native("select(Tensor self, int dim, int index) -> Tensor", tags=VIEW)
native(
    "slice(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    tags=VIEW,
    module="_ops",
    method=False,
)
native("transpose(Tensor self, int dim0, int dim1) -> Tensor", tags=VIEW)
native("permute(Tensor self, int[] dims) -> Tensor", tags=VIEW)
native("expand(Tensor self, int[] size, *, bool implicit=False) -> Tensor", tags=VIEW, function=False)
native("unsqueeze(Tensor self, int dim) -> Tensor", tags=VIEW)
native("squeeze(Tensor self) -> Tensor", tags=VIEW)
native("squeeze.dim(Tensor self, int dim) -> Tensor", tags=VIEW)
native("squeeze.dims(Tensor self, int[] dim) -> Tensor", tags=VIEW)
native("alias(Tensor self) -> Tensor", tags=VIEW, module="_ops", method=False)
native("detach(Tensor self) -> Tensor", tags=("view", "no_grad"))
native("unfold(Tensor self, int dimension, int size, int step) -> Tensor", tags=VIEW, function=False)
native("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor", tags=VIEW)
native("view_as_real(Tensor self) -> Tensor", tags=VIEW, method=False)
native("view_as_complex(Tensor self) -> Tensor", tags=VIEW, method=False)
# Conjugated or negated when the elements are read (csrc/ops/deferred.cpp); twice is not at all.
native("_conj(Tensor self) -> Tensor", tags=VIEW, module="")
native("_neg_view(Tensor self) -> Tensor", tags=VIEW, module="")

# The same on the tensor itself: its geometry changes, no value is written.
native("as_strided_(Tensor(!) self, int[] size, int[] stride, int? storage_offset=None) -> Tensor", tags=VIEW)
native("transpose_(Tensor(!) self, int dim0, int dim1) -> Tensor", function=False, tags=VIEW)
native("unsqueeze_(Tensor(!) self, int dim) -> Tensor", function=False, tags=VIEW)
native("squeeze_(Tensor(!) self) -> Tensor", function=False, tags=VIEW)
native("squeeze_.dim(Tensor(!) self, int dim) -> Tensor", function=False, tags=VIEW)
native("squeeze_.dims(Tensor(!) self, int[] dim) -> Tensor", function=False, tags=VIEW)
native("t_(Tensor(!) self) -> Tensor", function=False, tags=VIEW)
native("swapaxes_(Tensor(!) self, int axis0, int axis1) -> Tensor", function=False, tags=VIEW)
native("swapdims_(Tensor(!) self, int dim0, int dim1) -> Tensor", function=False, tags=VIEW)

# Gradients of windows: the gradient at its place in a tensor of zeros.
native("_select_backward(Tensor grad, int[] input_sizes, int dim, int index) -> Tensor")
native("_slice_backward(Tensor grad, int[] input_sizes, int dim, int? start, int? end, int step) -> Tensor")
native("_diagonal_backward(Tensor grad, int[] input_sizes, int offset, int dim1, int dim2) -> Tensor")


@vjp(
    "view",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "squeeze_",
    "squeeze_.dim",
    "squeeze_.dims",
    "unsqueeze",
    "unsqueeze_",
)
def reshape_vjp(g: fl.Tensor, self_sizes: fl.Size) -> fl.Tensor:
    return g.reshape(self_sizes)


def _scatter_window(
    g: fl.Tensor,
    sizes: fl.Size,
    strides: Sequence[int],
    window_sizes: Sequence[int],
    window_strides: Sequence[int],
    offset: int,
) -> fl.Tensor:
    """A tensor of the given geometry whose elements are the sums of those of g that a window has there."""
    if not fl._C._has_torch_function_unary(g):
        return fl._C._scatter_window(g, sizes, strides, window_sizes, window_strides, offset)
    extent = 1
    for n, stride in zip(sizes, strides):
        extent = extent + (n - 1) * stride
    places = fl.full((), offset, dtype=fl.int64, device=g.device)
    for n, stride in zip(window_sizes, window_strides):
        places = places.unsqueeze(-1) + fl.arange(n, device=g.device) * stride
    flat = fl.zeros(extent, dtype=g.dtype, device=g.device)
    return flat.index_add(0, places.reshape(-1), g.reshape(-1)).as_strided(tuple(sizes), tuple(strides))


@vjp("as_strided", "as_strided_")
def as_strided_vjp(
    g: fl.Tensor, self_window: fl.Tensor, size: list[int], stride: list[int], storage_offset: int | None
) -> fl.Tensor:
    offset = 0 if storage_offset is None else storage_offset - self_window.storage_offset()
    return _scatter_window(g, self_window.shape, self_window.stride(), size, stride, offset)


@vjp("select")
def select_vjp(g: fl.Tensor, self_sizes: fl.Size, dim: int, index: int) -> fl.Tensor:
    return fl._ops._select_backward(g, self_sizes, dim, index)


@vjp("_select_backward")
def select_backward_vjp(g: fl.Tensor, dim: int, index: int) -> fl.Tensor:
    return g.select(dim, index)


@vjp("slice")
def slice_vjp(g: fl.Tensor, self_sizes: fl.Size, dim: int, start: Any, end: Any, step: int) -> fl.Tensor:
    return fl._ops._slice_backward(g, self_sizes, dim, start, end, step)


@vjp("_slice_backward")
def slice_backward_vjp(g: fl.Tensor, dim: int, start: Any, end: Any, step: int) -> fl.Tensor:
    return fl._ops.slice(g, dim, start, end, step)


@vjp("transpose", "transpose_", "swapdims_")
def transpose_vjp(g: fl.Tensor, dim0: int, dim1: int) -> fl.Tensor:
    return g.transpose(dim0, dim1)


@vjp("swapaxes_")
def swapaxes_vjp(g: fl.Tensor, axis0: int, axis1: int) -> fl.Tensor:
    return g.transpose(axis0, axis1)


@vjp("t_")
def t_vjp(g: fl.Tensor) -> fl.Tensor:
    return g.t()


@vjp("permute")
def permute_vjp(g: fl.Tensor, dims: list[int]) -> fl.Tensor:
    inverse = [0] * len(dims)
    for i, d in enumerate(dims):
        inverse[d % len(dims)] = i
    return g.permute(inverse)


@vjp("expand")
def expand_vjp(g: fl.Tensor, self_sizes: fl.Size) -> fl.Tensor:
    return g.sum_to_size(self_sizes)


@vjp("alias")
def alias_vjp(g: fl.Tensor) -> fl.Tensor:
    return g


@vjp("unfold")
def unfold_vjp(g: fl.Tensor, self_sizes: fl.Size, dimension: int, step: int) -> fl.Tensor:
    strides: list[int] = []
    stride = 1
    for n in reversed(self_sizes):
        strides.insert(0, stride)
        stride *= n
    window = list(strides)
    inner = 1
    if window:
        inner = strides[dimension]
        window[dimension] = inner * step
    return _scatter_window(g, self_sizes, strides, g.shape, [*window, inner], 0)


@vjp("diagonal")
def diagonal_vjp(g: fl.Tensor, self_sizes: fl.Size, offset: int, dim1: int, dim2: int) -> fl.Tensor:
    return fl._ops._diagonal_backward(g, self_sizes, offset, dim1, dim2)


@vjp("_diagonal_backward")
def diagonal_backward_vjp(g: fl.Tensor, offset: int, dim1: int, dim2: int) -> fl.Tensor:
    return g.diagonal(offset, dim1, dim2)


@vjp("view_as_real")
def view_as_real_vjp(g: fl.Tensor) -> fl.Tensor:
    return fl.view_as_complex(g.contiguous().resolve_neg())


@vjp("view_as_complex")
def view_as_complex_vjp(g: fl.Tensor) -> fl.Tensor:
    return fl.view_as_real(g.resolve_conj().resolve_neg())


@vjp("_conj")
def conj_view_vjp(g: fl.Tensor) -> fl.Tensor:
    return g.conj_physical()


@vjp("_neg_view")
def neg_view_vjp(g: fl.Tensor) -> fl.Tensor:
    return -g


native("reshape(Tensor self, int[] shape) -> Tensor")
native("flatten(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor")
native("unflatten(Tensor self, int dim, int[] sizes) -> Tensor")
native("ravel(Tensor self) -> Tensor")
native("reshape_as(Tensor self, Tensor other) -> Tensor", function=False)
native("view_as(Tensor self, Tensor other) -> Tensor", function=False)
native("expand_as(Tensor self, Tensor other) -> Tensor", function=False)
native("t(Tensor self) -> Tensor")
native("adjoint(Tensor self) -> Tensor")
native("swapaxes(Tensor self, int axis0, int axis1) -> Tensor")
native("swapdims(Tensor self, int dim0, int dim1) -> Tensor")
native("movedim.int(Tensor self, int source, int destination) -> Tensor")
native("movedim.intlist(Tensor self, int[] source, int[] destination) -> Tensor")
native("moveaxis.int(Tensor self, int source, int destination) -> Tensor")
native("moveaxis.intlist(Tensor self, int[] source, int[] destination) -> Tensor")
native("real(Tensor self) -> Tensor", method=False)
native("imag(Tensor self) -> Tensor", method=False)
native("resolve_conj(Tensor self) -> Tensor")
native("resolve_neg(Tensor self) -> Tensor")
native("conj(Tensor self) -> Tensor")

# Behind the attributes of the same names.
native("_numpy_T(Tensor self) -> Tensor")
native("_mT(Tensor self) -> Tensor")
native("_H(Tensor self) -> Tensor")
native("_mH(Tensor self) -> Tensor")


# ---------------------------------------------------------------- what passes know of these operators

tag("conversion", "resolve_conj resolve_neg")
tag("core", "alias as_strided diagonal expand permute select slice squeeze unsqueeze view")
tag("elementwise", "detach resolve_conj resolve_neg")
tag(
    "moves",
    "as_strided diagonal expand expand_as flatten moveaxis movedim permute ravel reshape select slice squeeze "
    "swapaxes swapdims t transpose unflatten unfold unsqueeze view view_as",
)
tag("reshapes", "as_strided_ squeeze_ swapaxes_ swapdims_ t_ transpose_ unsqueeze_")
autocast("float32", "view_as_complex", on="cpu")
aten("Tensor", "slice")
aten("int", "select transpose transpose_")
node("SqueezeBackward1", "squeeze.dim")
node("SqueezeBackward2", "squeeze.dims")
