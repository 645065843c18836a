"""Definitions of joining, splitting, padding and reordering in terms of other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition


@definition("cat")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    tensors = [t for t in tensors if t.dim() != 1 or t.shape[0] != 0] or list(tensors[:1])
    dim %= max(tensors[0].dim(), 1)
    shape = list(tensors[0].shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = fl.promote_types(dtype, t.dtype)
    out = fl.empty(shape, dtype=dtype, device=tensors[0].device)
    start = 0
    for t in tensors:
        out.narrow(dim, start, t.shape[dim]).copy_(t)
        start += t.shape[dim]
    return out


@definition("stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return fl.cat([t.unsqueeze(dim) for t in tensors], dim)


@definition("constant_pad_nd")
def constant_pad_nd(self: Any, pad: Sequence[int], value: Any = 0) -> Any:
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    shape, inner, source = list(self.shape), None, self
    for i, (before, after) in enumerate(pairs):
        shape[-1 - i] += before + after
    inner = out = fl.full(shape, value, dtype=self.dtype, device=self.device)
    for i, (before, after) in enumerate(pairs):
        d = self.dim() - 1 - i
        inner = inner.narrow(d, max(before, 0), shape[d] - max(before, 0) - max(after, 0))
        source = source.narrow(d, max(-before, 0), self.shape[d] + min(before, 0) + min(after, 0))
    inner.copy_(source)
    return out


def _edge_sources(mode: str, size: int, low: int, high: int, device: Any) -> Any:
    """For each position of a padded dimension, the position it is copied from."""
    position = fl.arange(-low, size + high, device=device)
    if mode == "replicate":
        return position.clamp(0, size - 1)
    if mode == "circular":
        return position.remainder(size)
    return (size - 1) - ((size - 1) - position.abs()).abs()


@definition("_edge_pad")
def _edge_pad(self: Any, pad: Sequence[int], mode: str) -> Any:
    for k in range(len(pad) // 2):
        dim = self.dim() - 1 - k
        sources = _edge_sources(mode, self.shape[dim], pad[2 * k], pad[2 * k + 1], self.device)
        self = fl.index_select(self, dim, sources)
    return self


@definition("_edge_pad_backward")
def _edge_pad_backward(grad: Any, sizes: Sequence[int], pad: Sequence[int], mode: str) -> Any:
    for k in reversed(range(len(pad) // 2)):
        dim = grad.dim() - 1 - k
        shape = [*grad.shape[:dim], sizes[dim], *grad.shape[dim + 1 :]]
        sources = _edge_sources(mode, sizes[dim], pad[2 * k], pad[2 * k + 1], grad.device)
        grad = fl.zeros(shape, dtype=grad.dtype, device=grad.device).index_add(dim, sources, grad)
    return grad


@definition("flip")
def flip(self: Any, dims: Sequence[int]) -> Any:
    for d in dims:
        d %= max(self.dim(), 1)
        if self.dim():
            self = fl.index_select(self, d, self.shape[d] - 1 - fl.arange(self.shape[d], device=self.device))
    return self.clone()


@definition("roll")
def roll(self: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    if not dims:
        return fl.roll(self.reshape(-1), shifts, [0]).reshape(self.shape)
    for shift, d in zip(shifts, dims):
        n = self.shape[d]
        if n:
            self = fl.index_select(self, d % self.dim(), fl.remainder(fl.arange(n, device=self.device) - shift, n))
    return self.clone()


def _triangle(self: Any, diagonal: int, lower: bool) -> Any:
    rows = fl.arange(self.shape[-2], device=self.device).unsqueeze(1)
    columns = fl.arange(self.shape[-1], device=self.device).unsqueeze(0)
    keep = columns - rows <= diagonal if lower else columns - rows >= diagonal
    return fl.where(keep, self, fl.zeros((), dtype=self.dtype, device=self.device))


definition("tril")(lambda self, diagonal=0: _triangle(self, diagonal, True))
definition("triu")(lambda self, diagonal=0: _triangle(self, diagonal, False))


@definition("diag_embed")
def diag_embed(self: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    n = self.shape[-1] + abs(offset)
    ndim = self.dim() + 1
    first, second = dim1 % ndim, dim2 % ndim
    shape = list(self.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, n)
    out = fl.zeros(shape, dtype=self.dtype, device=self.device)
    out.diagonal(offset, first, second).copy_(self)
    return out


definition("trace")(lambda self: self.diagonal().sum())


@definition("repeat")
def repeat(self: Any, repeats: Sequence[int]) -> Any:
    lead = len(repeats) - self.dim()
    sizes = [1] * lead + list(self.shape)
    view = [n for size in sizes for n in (1, size)]
    wide = [n for r, size in zip(repeats, sizes) for n in (r, size)]
    return self.reshape(view).expand(wide).reshape([r * size for r, size in zip(repeats, sizes)])


@definition("repeat_interleave.Tensor")
def repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    ends = fl.cumsum(repeats, 0)
    total = output_size if output_size is not None else int(ends[-1]) if ends.numel() else 0
    return fl._ops._search(ends, fl.arange(total, device=repeats.device), True, repeats.dtype is fl.int32)


def _triangle_indices(name: str, inside: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Where a matrix has elements of a triangle, row by row."""

    def make(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        fl._C._operator_object(name)(row, col, offset, device="meta", **options)  # its checks
        rows, cols = fl.arange(row, device=device).unsqueeze(1), fl.arange(col, device=device)
        return fl.nonzero(inside(cols - rows, offset)).t().contiguous().to(dtype or fl.int64)

    return make


definition("tril_indices")(_triangle_indices("tril_indices", lambda right, offset: right <= offset))
definition("triu_indices")(_triangle_indices("triu_indices", lambda right, offset: right >= offset))
