"""Tensors from nothing: constant fills, ranges, and empty tensors of a given geometry."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import aten, fill, native, tag, vjp

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
tag("sequence", "arange range linspace logspace")

native(f"empty_like(Tensor self, *, {LIKE}) -> Tensor", method=False, tags=("no_grad",))
native(f"zeros_like(Tensor self, *, {LIKE}) -> Tensor", method=False, tags=("no_grad",))
native(f"ones_like(Tensor self, *, {LIKE}) -> Tensor", method=False, tags=("no_grad",))
native(f"full_like(Tensor self, Scalar fill_value, *, {LIKE}) -> Tensor", method=False, tags=("no_grad",))

native(f"new_empty(Tensor self, int[] size, *, {OPTIONS}) -> Tensor", function=False, tags=("no_grad",))
native(f"new_zeros(Tensor self, int[] size, *, {OPTIONS}) -> Tensor", function=False, tags=("no_grad",))
native(f"new_ones(Tensor self, int[] size, *, {OPTIONS}) -> Tensor", function=False, tags=("no_grad",))
native(
    f"new_full(Tensor self, int[] size, Scalar fill_value, *, {OPTIONS}) -> Tensor", function=False, tags=("no_grad",)
)
native(
    f"new_empty_strided(Tensor self, int[] size, int[] stride, *, {OPTIONS}) -> Tensor",
    function=False,
    tags=("no_grad",),
)

native("fill_(Tensor(!) self, Tensor|Scalar value) -> Tensor")
native("fill(Tensor self, Tensor|Scalar value) -> Tensor", method=False)
native("zero_(Tensor(!) self) -> Tensor")


@vjp("fill_", "fill")
def fill_vjp(g: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return fl.zeros_like(g) if needs[0] else None, g.sum() if needs[1] else None


@vjp("zero_")
def zero_vjp(g: fl.Tensor) -> fl.Tensor:
    return fl.zeros_like(g)


@vjp("linspace")
def linspace_vjp(g: fl.Tensor, steps: int, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    weight = (
        fl.linspace(0, 1, steps, dtype=g.dtype, device=g.device)
        if steps > 1
        else fl.zeros(steps, dtype=g.dtype, device=g.device)
    )
    return (g * (1 - weight)).sum() if needs[0] else None, (g * weight).sum() if needs[1] else None


native("_local_scalar_dense(Tensor self) -> Scalar")


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "_local_scalar_dense arange empty empty_strided fill full full_like scalar_tensor")
tag("only_copies", "empty_like new_empty")
tag("elementwise", "empty_like full_like ones_like zeros_like")
tag("geometry", "empty_like full_like ones_like zeros_like new_empty new_empty_strided new_full new_ones new_zeros")
tag("mixed_devices", "fill fill_")
fill(0, "new_zeros zero_ zeros zeros_like")
fill(1, "new_ones ones ones_like")
fill("fill_value", "full full_like new_full")
fill("s", "scalar_tensor")
fill("value", "fill fill_")
aten("Scalar", "fill fill_")
aten("memory_format", "empty")
