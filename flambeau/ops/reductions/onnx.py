"""Reductions, statistics and running totals in ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


def _axes(dim: Any) -> list[int] | None:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return None
    return [int(d) for d in dim] if isinstance(dim, Sequence) else [int(dim)]


def _reduction(name: str, op_type: str) -> None:
    @onnx(name)
    def rule(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
        return g.reduce(op_type, g.cast(self, g.dtype), _axes(dim), keepdim)


for _name, _op_type in {"sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "amax": "ReduceMax", "amin": "ReduceMin"}.items():  # fmt: skip
    _reduction(_name, _op_type)


@onnx("max")
def whole_max(g: Any, self: Any) -> Any:
    return g.reduce("ReduceMax", self, None, False)


@onnx("min")
def whole_min(g: Any, self: Any) -> Any:
    return g.reduce("ReduceMin", self, None, False)


def _logical(op_type: str) -> Any:
    def rule(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
        held = g.cast(g.cast(self, fl.bool), fl.int32)
        return g.cast(g.reduce(op_type, held, _axes(dim), keepdim), g.dtype)

    return rule


onnx("any")(_logical("ReduceMax"))
onnx("all")(_logical("ReduceMin"))


def _extreme(name: str, op_type: str, position: str) -> None:
    @onnx(f"{name}.dim")
    def rule(g: Any, self: Any, dim: int, keepdim: bool) -> Any:
        values = g.reduce(op_type, self, [dim], keepdim)
        return values, g.op(position, self, dtype=fl.int64, axis=dim, keepdims=int(keepdim))

    @onnx(f"arg{name}")
    def argument(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
        if dim is None:
            flat = g.op("Reshape", self, g.ints([-1]))
            return g.op(position, flat, dtype=fl.int64, axis=0, keepdims=0)
        return g.op(position, self, dtype=fl.int64, axis=dim, keepdims=int(keepdim))


_extreme("max", "ReduceMax", "ArgMax")
_extreme("min", "ReduceMin", "ArgMin")


def _variance(g: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    axes = _axes(dim)
    mean = g.reduce("ReduceMean", self, axes, True)
    centered = g.op("Sub", self, mean)
    square = g.op("Mul", centered, centered)
    variance = g.reduce("ReduceMean", square, axes, keepdim)
    if correction:
        total = g.reduce("ReduceSum", square, axes, keepdim)
        counted = list(range(self.rank)) if axes is None else axes
        count: Any = 1
        for axis in counted:
            size = g.dim(self, axis)
            if isinstance(size, int) and isinstance(count, int):
                count *= size
            else:
                count = g.arithmetic("Mul", count, size)
        if isinstance(count, int):
            divisor = g.constant(float(max(count - correction, 0)), self.dtype)
        else:
            divisor = g.op("Sub", g.cast(count, self.dtype), g.constant(float(correction), self.dtype))
        variance = g.op("Div", total, divisor)
    if not keepdim:
        mean = g.reduce("ReduceMean", self, axes, False)
    return variance, mean


def _statistics(name: str, root: bool, with_mean: bool) -> None:
    def finish(g: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
        variance, mean = _variance(g, self, dim, correction, keepdim)
        spread = g.op("Sqrt", variance) if root else variance
        return (spread, mean) if with_mean else spread

    @onnx(name)
    def whole(g: Any, self: Any, unbiased: bool) -> Any:
        return finish(g, self, None, int(unbiased), False)

    @onnx(f"{name}.dim")
    def along(g: Any, self: Any, dim: Any, unbiased: bool, keepdim: bool) -> Any:
        return finish(g, self, dim, int(unbiased), keepdim)

    @onnx(f"{name}.correction")
    def corrected(g: Any, self: Any, dim: Any, correction: Any, keepdim: bool) -> Any:
        return finish(g, self, dim, 1 if correction is None else correction, keepdim)


for _name in ("var", "std"):
    _statistics(_name, _name == "std", False)
    _statistics(f"{_name}_mean", _name == "std", True)


@onnx("_norm_1")
def norm_1(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
    return g.reduce("ReduceL1", g.cast(self, g.dtype), _axes(dim), keepdim)


@onnx("_norm_2")
def norm_2(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
    return g.reduce("ReduceL2", g.cast(self, g.dtype), _axes(dim), keepdim)


@onnx("_norm_inf")
def norm_inf(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
    return g.reduce("ReduceMax", g.op("Abs", g.cast(self, g.dtype)), _axes(dim), keepdim)


@onnx("_norm_p")
def norm_p(g: Any, self: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    order = g.constant(float(p), g.dtype)
    total = g.reduce("ReduceSum", g.op("Pow", g.op("Abs", g.cast(self, g.dtype)), order), _axes(dim), keepdim)
    return g.op("Pow", total, g.constant(1.0 / float(p), g.dtype))


@onnx("logsumexp", "_logsumexp")
def logsumexp(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
    return g.reduce("ReduceLogSumExp", g.cast(self, g.dtype), _axes(dim), keepdim)


@onnx("cumsum")
def cumsum(g: Any, self: Any, dim: int) -> Any:
    return g.op("CumSum", g.cast(self, g.dtype), g.constant(dim, fl.int64))


@onnx("count_nonzero")
def count_nonzero(g: Any, self: Any, dim: Any = None) -> Any:
    return g.reduce("ReduceSum", g.cast(g.cast(self, fl.bool), fl.int64), _axes(dim), False)


@onnx("isin")
def isin(g: Any, elements: Any, test_elements: Any, invert: bool) -> Any:
    a, b = g.promoted(elements, test_elements)
    wide = g.unsqueeze(a, -1)
    hits = g.cast(g.op("Equal", wide, g.op("Reshape", b, g.ints([-1])), dtype=fl.bool), fl.int32)
    present = g.cast(g.op("ReduceMax", hits, g.ints([-1]), keepdims=0), fl.bool) if g.opset >= 18 else g.cast(
        g.op("ReduceMax", hits, axes=[-1], keepdims=0), fl.bool
    )  # fmt: skip
    return g.op("Not", present) if invert else present


@onnx("bucketize.Tensor")
def bucketize(g: Any, self: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    """How many boundaries lie below a value, or at it."""
    self, boundaries = g.promoted(self, boundaries)
    values = g.unsqueeze(self, -1)
    above = g.op("Less" if right else "LessOrEqual", values, boundaries, dtype=fl.bool)
    below = g.op("Cast", g.op("Not", above, dtype=fl.bool), dtype=fl.int64, to=7)
    return g.cast(g.op("ReduceSum", below, g.ints([-1]), keepdims=0), fl.int32 if out_int32 else fl.int64)


@onnx("searchsorted.Tensor")
def searchsorted(g: Any, sorted_sequence: Any, self: Any, out_int32: bool, right: bool, side: Any, sorter: Any) -> Any:
    if sorter is not None or sorted_sequence.rank != 1:
        raise g.unsupported("one sorted sequence is, without a sorter")
    return bucketize(g, self, sorted_sequence, out_int32, right or side == "right")
