"""Tensors from nothing: constant fills, ranges, and empty tensors of a given geometry."""

from __future__ import annotations

from flambeau.ops.record import native

OPTIONS = "dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False"
LIKE = f"{OPTIONS}, memory_format? memory_format=None"

native(f"empty(int[] size, *, {LIKE}) -> Tensor", out=True)
native(f"zeros(int[] size, *, {OPTIONS}) -> Tensor", out=True)
native(f"ones(int[] size, *, {OPTIONS}) -> Tensor", out=True)
native(f"full(int[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor", out=True)
native(f"eye(int n, *, {OPTIONS}) -> Tensor", out=True)
native(f"eye.m(int n, int m, *, {OPTIONS}) -> Tensor", out=True)
native(f"empty_strided(int[] size, int[] stride, *, {OPTIONS}) -> Tensor")
native(f"empty_permuted(int[] size, int[] physical_layout, *, {OPTIONS}) -> Tensor")
native(f"scalar_tensor(Scalar s, *, {OPTIONS}) -> Tensor")

native(f"arange(Scalar end, *, {OPTIONS}) -> Tensor", out=True)
native(f"arange.start(Scalar start, Scalar end, *, {OPTIONS}) -> Tensor")
native(f"arange.start_step(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor", out=True)
native(f"range(Scalar start, Scalar end, Scalar step=1, *, {OPTIONS}) -> Tensor", out=True)
native(f"linspace(Tensor|Scalar start, Tensor|Scalar end, int steps, *, {OPTIONS}) -> Tensor", out=True)
native(
    f"logspace(Tensor|Scalar start, Tensor|Scalar end, int steps, float base=10.0, *, {OPTIONS}) -> Tensor", out=True
)

native(f"empty_like(Tensor self, *, {LIKE}) -> Tensor", method=False)
native(f"zeros_like(Tensor self, *, {LIKE}) -> Tensor", method=False)
native(f"ones_like(Tensor self, *, {LIKE}) -> Tensor", method=False)
native(f"full_like(Tensor self, Scalar fill_value, *, {LIKE}) -> Tensor", method=False)

native(f"new_empty(Tensor self, int[] size, *, {OPTIONS}) -> Tensor", function=False)
native(f"new_zeros(Tensor self, int[] size, *, {OPTIONS}) -> Tensor", function=False)
native(f"new_ones(Tensor self, int[] size, *, {OPTIONS}) -> Tensor", function=False)
native(f"new_full(Tensor self, int[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor", function=False)
native(f"new_empty_strided(Tensor self, int[] size, int[] stride, *, {OPTIONS}) -> Tensor", function=False)

native("fill_(Tensor(!) self, Tensor|Scalar value) -> Tensor")
native("fill(Tensor self, Tensor|Scalar value) -> Tensor", method=False)
native("zero_(Tensor(!) self) -> Tensor")

native("_local_scalar_dense(Tensor self) -> Scalar")
