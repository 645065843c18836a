"""Tensors from nothing, and copies."""

from __future__ import annotations

from flambeau.ops.record import native

native("_empty(int[] size, *, dtype? dtype=None, device? device=None, memory_format? memory_format=None) -> Tensor")
native("empty_strided(int[] size, int[] stride, *, dtype? dtype=None, device? device=None) -> Tensor", module="_ops")
native("fill_(Tensor(!) self, Tensor|Scalar value) -> Tensor")
native("_arange(Scalar start, Scalar end, Scalar step, *, dtype? dtype=None, device? device=None) -> Tensor")
native("scalar_tensor(Scalar s, *, dtype? dtype=None, device? device=None) -> Tensor", module="_ops")

native("copy_(Tensor(!) self, Tensor src, bool non_blocking=False) -> Tensor", function=False)
native("clone(Tensor self, *, memory_format? memory_format=None) -> Tensor")
native("_to_dtype(Tensor self, dtype dtype, *, memory_format? memory_format=None) -> Tensor")
