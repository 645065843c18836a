"""Sorting and selection along a dimension, and searches in sorted sequences."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native

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


@composite("msort(Tensor self) -> Tensor", out=True)
def msort(self: fl.Tensor) -> fl.Tensor:
    return fl.sort(self, 0)[0]
