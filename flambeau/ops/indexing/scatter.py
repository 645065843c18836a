"""Gather and scatter: an index for each element, along one dimension. The kernels are in csrc/ops/scatter.cpp."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp

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


def _gathered(g: fl.Tensor, dim: int, index: fl.Tensor, sizes: fl.Size) -> fl.Tensor:
    """The gradient of a source whose leading part, of the index's shape, was scattered."""
    picked = g.gather(dim, index)
    if tuple(picked.shape) == tuple(sizes):
        return picked
    return fl.constant_pad_nd(picked, [p for n, m in zip(reversed(sizes), reversed(picked.shape)) for p in (0, n - m)])


@vjp("gather")
def gather_vjp(g: fl.Tensor, self_sizes: fl.Size, dim: int, index: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return fl.zeros(self_sizes, dtype=g.dtype, device=g.device).scatter_add(dim, index.to(fl.int64), g), None


@vjp("scatter.src")
def scatter_src_vjp(
    g: fl.Tensor, dim: int, index: fl.Tensor, src_sizes: fl.Size, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    return (
        g.scatter(dim, index, 0) if needs[0] else None,
        None,
        _gathered(g, dim, index, src_sizes) if needs[2] else None,
    )


@vjp("scatter.value")
def scatter_value_vjp(g: fl.Tensor, dim: int, index: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return g.scatter(dim, index, 0), None


@vjp("scatter_add")
def scatter_add_vjp(
    g: fl.Tensor, dim: int, index: fl.Tensor, src_sizes: fl.Size, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    return g, None, _gathered(g, dim, index, src_sizes) if needs[2] else None


@vjp("scatter_reduce.two")
def scatter_reduce_vjp(
    g: fl.Tensor,
    self: fl.Tensor,
    dim: int,
    index: fl.Tensor,
    src: fl.Tensor,
    reduce: str,
    include_self: bool,
    out: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    part = src
    if tuple(src.shape) != tuple(index.shape):
        for d, n in enumerate(index.shape):
            part = part.narrow(d, 0, n)
    grad_self, grad_part = _reduced_gradients(g, self, dim, index, part, reduce, include_self, out)
    if grad_part is not None and tuple(src.shape) != tuple(index.shape):
        grad_part = fl.constant_pad_nd(
            grad_part, [p for n, m in zip(reversed(src.shape), reversed(grad_part.shape)) for p in (0, n - m)]
        )
    return grad_self if needs[0] else None, None, grad_part if needs[2] else None


def _conj(x: fl.Tensor) -> fl.Tensor:
    return x.conj() if x.is_complex() else x


def _reduced_gradients(
    g: fl.Tensor,
    self: fl.Tensor,
    dim: int,
    index: fl.Tensor,
    src: fl.Tensor,
    reduce: str,
    include_self: bool,
    out: fl.Tensor,
) -> tuple[fl.Tensor | None, ...]:
    def untouched(x: fl.Tensor) -> fl.Tensor:
        return x if include_self else x.scatter(dim, index, 0)

    if reduce == "sum":
        return untouched(g), g.gather(dim, index)
    if reduce == "mean":
        start = fl.ones_like(g) if include_self else fl.ones_like(g).scatter(dim, index, 0)
        count = start.scatter_add(dim, index, fl.ones_like(src))
        share = g / count.masked_fill(count == 0, 1)
        return untouched(share), share.gather(dim, index)
    if reduce == "prod":
        base = self if include_self else self.scatter(dim, index, 1)
        zero_self, zero_src = base == 0, src == 0
        counted = zero_self.to(g.dtype).scatter_add(dim, index, zero_src.to(g.dtype))
        others = base.masked_fill(zero_self, 1).scatter_reduce(dim, index, src.masked_fill(zero_src, 1), "prod")
        alive = others.masked_fill(counted != 0, 0)
        single = others.masked_fill(counted != 1, 0)
        grad_self = g * _conj(fl.where(zero_self, single, alive / base.masked_fill(zero_self, 1)))
        others = fl.where(zero_src, single.gather(dim, index), alive.gather(dim, index) / src.masked_fill(zero_src, 1))
        grad_src = g.gather(dim, index) * _conj(others)
        return untouched(grad_self), grad_src
    # Maxima and minima share the gradient among those that reach it.
    hit_self = (self == out).to(g.dtype)
    if not include_self:
        hit_self = hit_self.scatter(dim, index, 0)
    hit_src = (src == out.gather(dim, index)).to(g.dtype)
    count = hit_self.scatter_add(dim, index, hit_src)
    share = g / count.masked_fill(count == 0, 1)
    if not include_self:
        hit_self = hit_self + fl.ones_like(g).scatter(dim, index, 0) * (count == 0).to(g.dtype)
    return share * hit_self, share.gather(dim, index) * hit_src


# ---------------------------------------------------------------- a view replaced, in a new tensor


def _replaced(op: str, self: fl.Tensor, src: fl.Tensor, view: fl.Tensor) -> None:
    if src.shape != view.shape:
        raise RuntimeError(f"[{op}] expected a source of shape {tuple(view.shape)}, got {tuple(src.shape)}")
    view.copy_(src)


@composite(out=True)
def select_scatter(self: fl.Tensor, src: fl.Tensor, dim: int, index: int) -> fl.Tensor:
    out = self.clone()
    _replaced("select_scatter", self, src, out.select(dim, index))
    return out


@composite(out=True)
def slice_scatter(
    self: fl.Tensor, src: fl.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> fl.Tensor:
    out = self.clone()
    _replaced("slice_scatter", self, src, fl._ops.slice(out, dim, start, end, step))
    return out


@composite(out=True)
def diagonal_scatter(self: fl.Tensor, src: fl.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> fl.Tensor:
    out = self.clone()
    _replaced("diagonal_scatter", self, src, out.diagonal(offset, dim1, dim2))
    return out


@composite(out=True)
def as_strided_scatter(
    self: fl.Tensor, src: fl.Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> fl.Tensor:
    out = self.clone()
    _replaced("as_strided_scatter", self, src, out.as_strided(size, stride, storage_offset))
    return out


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "gather scatter scatter_add scatter_reduce select_scatter slice_scatter")
tag("moves recomputable", "gather")
autocast("widest", "scatter_add", on="accelerator")
node("ScatterBackward1", "scatter.value")
