"""Tensors from nothing, copies and conversions in ONNX."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


@onnx("clone", "contiguous", "cpu", "_to_cpu", "to.device")
def copied(g: Any, self: Any) -> Any:
    return g.cast(self, g.dtype)


@onnx("_to_copy", "to.dtype", "to.other", "type_as")
def converted(g: Any, self: Any) -> Any:
    return g.cast(self, g.dtype)


onnx("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool")(converted)


def filled(g: Any, value: Any) -> Any:
    """A tensor of one number in the shape of the result."""
    sizes = g.result_sizes()
    if hasattr(value, "name"):
        return g.op("Expand", g.cast(value, g.dtype), g.ints(sizes))
    if all(isinstance(size, int) for size in sizes):
        tensor = fl.full([], value, dtype=g.dtype)
        return g.op("Expand", g.constant(tensor), g.ints(sizes), dtype=g.dtype) if sizes else g.constant(tensor)
    return g.op("ConstantOfShape", g.ints(sizes), dtype=g.dtype, value=fl.full([1], value, dtype=g.dtype))


@onnx("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty")
def zeros(g: Any) -> Any:
    return filled(g, 0)


@onnx("ones", "ones_like", "new_ones")
def ones(g: Any) -> Any:
    return filled(g, 1)


@onnx("full", "full_like", "new_full")
def full(g: Any, fill_value: Any) -> Any:
    return filled(g, fill_value)


@onnx("fill")
def fill(g: Any, value: Any) -> Any:
    return filled(g, value)


@onnx("scalar_tensor")
def scalar_tensor(g: Any, s: Any) -> Any:
    return g.cast(s, g.dtype)


def _range(g: Any, start: Any, end: Any, step: Any) -> Any:
    if not any(hasattr(x, "name") for x in (start, end, step)):
        return g.constant(fl.arange(start, end, step, dtype=g.dtype))
    parts = [g.cast(x, g.dtype) for x in (start, end, step)]
    return g.op("Range", *parts, dtype=g.dtype)


@onnx("arange")
def arange(g: Any, end: Any) -> Any:
    return _range(g, 0, end, 1)


@onnx("arange.start")
def arange_start(g: Any, start: Any, end: Any) -> Any:
    return _range(g, start, end, 1)


@onnx("arange.start_step")
def arange_step(g: Any, start: Any, end: Any, step: Any) -> Any:
    return _range(g, start, end, step)


@onnx("linspace")
def linspace(g: Any, start: Any, end: Any, steps: int) -> Any:
    return g.constant(fl.linspace(start, end, steps, dtype=g.dtype))


@onnx("eye", "eye.m")
def eye(g: Any) -> Any:
    sizes = g.result_sizes()
    if not all(isinstance(size, int) for size in sizes):
        raise g.unsupported("a size that varies")
    return g.constant(fl.eye(*sizes, dtype=g.dtype))
