"""Quantization in ONNX: QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx

_SPACE = "quantized_decomposed::"


def _grid(g: Any, scale: Any, zero_point: Any, dtype: Any) -> list[Any]:
    """Scale and zero point as ONNX has them: of float32, and of the dtype of the integers."""
    single = lambda value: g.op("Reshape", value, g.constant([], fl.int64), shape=())  # noqa: E731
    if isinstance(scale, float):
        return [g.constant(scale, fl.float32), g.constant(int(zero_point), dtype)]
    scale = g.cast(scale, fl.float32)
    zero_point = None if zero_point is None else g.cast(zero_point, dtype)
    return [scale, zero_point] if scale.rank != 1 or zero_point is None else [single(scale), single(zero_point)]  # type: ignore[no-untyped-call]


def _clipped(g: Any, value: Any, low: int, high: int, dtype: Any) -> Any:
    limits = fl.iinfo(dtype)
    if (low, high) == (limits.min, limits.max):
        return value
    return g.op("Clip", value, g.constant(low, dtype), g.constant(high, dtype), dtype=dtype)


@onnx(f"{_SPACE}quantize_per_tensor", f"{_SPACE}quantize_per_tensor.tensor")
def quantize_per_tensor(
    g: Any, input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    quantized = g.op("QuantizeLinear", input, *_grid(g, scale, zero_point, dtype), dtype=dtype, shape=input.shape)
    return _clipped(g, quantized, quant_min, quant_max, dtype)


@onnx(f"{_SPACE}dequantize_per_tensor", f"{_SPACE}dequantize_per_tensor.tensor")
def dequantize_per_tensor(
    g: Any, input: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int, dtype: Any, out_dtype: Any
) -> Any:
    grid = _grid(g, scale, zero_point, dtype)
    return g.op("DequantizeLinear", input, *grid, dtype=fl.float32, shape=input.shape)


def _channels(g: Any, scales: Any, zero_points: Any, dtype: Any) -> list[Any]:
    return [g.cast(scales, fl.float32), *([] if zero_points is None else [g.cast(zero_points, dtype)])]


@onnx(f"{_SPACE}quantize_per_channel")
def quantize_per_channel(
    g: Any, input: Any, scales: Any, zero_points: Any, axis: int, quant_min: int, quant_max: int, dtype: Any
) -> Any:
    grid = _channels(g, scales, zero_points, dtype)
    quantized = g.op("QuantizeLinear", input, *grid, axis=axis, dtype=dtype, shape=input.shape)
    return _clipped(g, quantized, quant_min, quant_max, dtype)


@onnx(f"{_SPACE}dequantize_per_channel")
def dequantize_per_channel(
    g: Any,
    input: Any,
    scales: Any,
    zero_points: Any,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    out_dtype: Any,
) -> Any:
    grid = _channels(g, scales, zero_points, dtype)
    return g.op("DequantizeLinear", input, *grid, axis=axis, dtype=fl.float32, shape=input.shape)


@onnx(f"{_SPACE}choose_qparams.tensor")
def choose_qparams(g: Any, input: Any, quant_min: int, quant_max: int, eps: float, dtype: Any) -> Any:
    zero = g.constant(0.0, fl.float32)
    least = g.op("Min", g.op("ReduceMin", input, keepdims=0, shape=()), zero)
    most = g.op("Max", g.op("ReduceMax", input, keepdims=0, shape=()), zero)
    width = g.constant(float(quant_max - quant_min), fl.float32)
    scale = g.op("Max", g.op("Div", g.op("Sub", most, least), width), g.constant(eps, fl.float32))
    start = g.constant(float(quant_min), fl.float32)
    place = g.op("Sub", start, g.op("Round", g.op("Div", least, scale)))
    zero_point = g.op("Clip", place, start, g.constant(float(quant_max), fl.float32))
    one = g.constant([1], fl.int64)
    return tuple(
        g.op("Reshape", g.cast(value, kind), one, dtype=kind, shape=(1,))
        for value, kind in ((scale, fl.float64), (zero_point, fl.int64))
    )


@onnx("_weight_int8pack_mm")
def weight_int8pack_mm(g: Any, self: Any, mat2: Any, scales: Any) -> Any:
    weight = g.op(
        "DequantizeLinear", mat2, *_channels(g, scales, None, None), axis=0, dtype=fl.float32, shape=mat2.shape
    )
    n, k = mat2.shape
    turned = g.op("Transpose", weight, perm=[1, 0], dtype=fl.float32, shape=(k, n))
    product = g.op("MatMul", g.cast(self, fl.float32), turned, dtype=fl.float32, shape=(self.shape[0], n))
    return g.cast(product, self.dtype)
