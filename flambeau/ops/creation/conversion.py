"""Copies and conversions: between dtypes, devices and memory formats."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp

native("copy_(Tensor(!) self, Tensor src, bool non_blocking=False) -> Tensor", function=False)
native("copy_.number(Tensor(!) self, Scalar src, bool non_blocking=False) -> Tensor", function=False)
native("clone(Tensor self, *, memory_format? memory_format=None) -> Tensor")


@vjp("copy_")
def copy_vjp(g: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    return fl.zeros_like(g) if needs[0] else None, g if needs[1] else None


native("_lazy_clone(Tensor self) -> Tensor")


@vjp("clone")
def clone_vjp(g: fl.Tensor) -> fl.Tensor:
    return g


@vjp("_lazy_clone")
def lazy_clone_vjp(g: fl.Tensor) -> fl.Tensor:
    return g


native(
    "_to_copy(Tensor self, *, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=None,"
    " bool non_blocking=False, memory_format? memory_format=None) -> Tensor"
)


@vjp("_to_copy")
def to_copy_vjp(g: fl.Tensor, self_dtype: fl.dtype, self_device: fl.device) -> fl.Tensor:
    return g.real.to(self_dtype) if g.is_complex() and not self_dtype.is_complex else g.to(self_device, self_dtype)


native("contiguous(Tensor self, *, memory_format memory_format=contiguous_format) -> Tensor", function=False)

TO = "bool non_blocking=False, bool copy=False, *, memory_format? memory_format=None"
native(f"to.dtype(Tensor self, dtype dtype, {TO}) -> Tensor", function=False)
native(f"to.device(Tensor self, device? device=None, dtype? dtype=None, {TO}) -> Tensor", function=False)
native(f"to.other(Tensor self, Tensor other, {TO}) -> Tensor", function=False)
native("type_as(Tensor self, Tensor other) -> Tensor", function=False)
native("cpu(Tensor self, *, memory_format? memory_format=None) -> Tensor", function=False)
native("_to_cpu(Tensor self) -> Tensor")

for _name in "float double half bfloat16 int long short char byte bool cfloat cdouble".split():
    native(f"{_name}(Tensor self, *, memory_format? memory_format=None) -> Tensor", function=False)

native("resize_(Tensor(!) self, int[] size, *, memory_format? memory_format=None) -> Tensor", function=False)
native("resize_as_(Tensor(!) self, Tensor the_template, *, memory_format? memory_format=None) -> Tensor")
native("_set_storage_(Tensor(!) self, Tensor source, int storage_offset, int[] size, int[] stride) -> Tensor")


@composite(out=True)
def complex(real: fl.Tensor, imag: fl.Tensor) -> fl.Tensor:
    if not {real.dtype, imag.dtype} <= {fl.float16, fl.float32, fl.float64}:
        raise RuntimeError(f"[complex] expected float tensors for real and imag, got {real.dtype} and {imag.dtype}")
    if real.dtype != imag.dtype:
        raise RuntimeError(f"[complex] expected real and imag of one dtype, got {real.dtype} and {imag.dtype}")
    real, imag = fl.broadcast_tensors(real, imag)
    return fl.view_as_complex(fl.stack((real, imag), -1))


@composite(out=True)
def polar(abs: fl.Tensor, angle: fl.Tensor) -> fl.Tensor:
    if not (abs.is_floating_point() and abs.dtype == angle.dtype):
        kinds = " and ".join(t.type().rpartition(".")[2].removesuffix("Tensor") for t in (abs, angle))
        raise RuntimeError(
            f"[polar] expected float tensors of one dtype, got {abs.dtype} and {angle.dtype}: Expected both inputs to be "
            f"Half, Float or Double tensors but got {kinds}"
        )
    return fl.complex(abs * fl.cos(angle), abs * fl.sin(angle))


# ---------------------------------------------------------------- what passes know of these operators

tag("conversion", "bfloat16 bool byte cdouble cfloat char contiguous cpu double float half int long short to type_as")
tag("copy", "_to_copy clone contiguous")
tag("only_copies", "_to_copy clone")
tag("core", "_to_copy clone")
tag(
    "elementwise",
    "bfloat16 bool byte cdouble cfloat char clone contiguous cpu double float half int long short to type_as",
)
tag("mixed_devices", "_set_storage_ copy_ resize_as_")
tag("reshapes", "_set_storage_ resize_ resize_as_")
tag("geometry", "_set_storage_ resize_ resize_as_")
autocast("float32", "polar", on="cpu")
node("CopyBackwards", "copy_")
