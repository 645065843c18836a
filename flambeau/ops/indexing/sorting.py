"""Sorting and selection along a dimension, and searches in sorted sequences."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native, node, tag, vjp

PAIR = "(Tensor values, Tensor indices)"

native(f"sort(Tensor self, int dim=-1, bool descending=False) -> {PAIR}", out=True)
native(f"sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> {PAIR}", out=True)
native("argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor", tags=("no_grad",))
native("argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor", tags=("no_grad",))
native(f"topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> {PAIR}", out=True)
native(f"kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> {PAIR}", out=True)
native("median(Tensor self) -> Tensor")
native(f"median.dim(Tensor self, int dim, bool keepdim=False) -> {PAIR}", out=True)
native("nanmedian(Tensor self) -> Tensor")
native(f"nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> {PAIR}", out=True)
native(f"mode(Tensor self, int dim=-1, bool keepdim=False) -> {PAIR}", out=True)


def _put_back(g: fl.Tensor, sizes: fl.Size, dim: int, indices: fl.Tensor) -> fl.Tensor:
    """The gradient at the places its values were taken from."""
    return fl.zeros(sizes, dtype=g.dtype, device=g.device).scatter(dim, indices, g) if len(sizes) else g.reshape(sizes)


@vjp("sort", "sort.stable", "topk")
def sort_vjp(g0: fl.Tensor, self_sizes: fl.Size, dim: int, indices: fl.Tensor) -> fl.Tensor:
    return _put_back(g0, self_sizes, dim, indices)


@vjp("kthvalue", "median.dim", "nanmedian.dim", "mode")
def picked_vjp(g0: fl.Tensor, self_sizes: fl.Size, dim: int, keepdim: bool, indices: fl.Tensor) -> fl.Tensor:
    if not keepdim and len(self_sizes):
        g0, indices = g0.unsqueeze(dim), indices.unsqueeze(dim)
    return _put_back(g0, self_sizes, dim, indices)


@vjp("median", "nanmedian")
def median_vjp(g: fl.Tensor, self: fl.Tensor, out: fl.Tensor) -> fl.Tensor:
    hit = (self == out) | (self.isnan() & out.isnan())
    return fl.where(hit, g / hit.sum(), 0)


@composite(out=True)
def msort(self: fl.Tensor) -> fl.Tensor:
    return fl.sort(self, 0)[0]


# ---------------------------------------------------------------- what passes know of these operators

tag("chooses core", "sort topk")
node("MedianBackward1", "median.dim")
node("NanmedianBackward1", "nanmedian.dim")
