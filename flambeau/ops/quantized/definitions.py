"""Definitions of products of quantized numbers, in floating point numbers that hold every sum exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition

_EXACT = 1 << 24  # integers that float32 holds
_SMALLEST_STEP = 6.1e-5  # of grids that are chosen from a range while a model runs

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "none": lambda value: value,
    "": lambda value: value,
    "relu": lambda value: value.relu(),
    "gelu": lambda value: fl.nn.functional.gelu(value),
    "gelu_tanh": lambda value: fl.nn.functional.gelu(value, approximate="tanh"),
    "silu": lambda value: fl.nn.functional.silu(value),
    "sigmoid": lambda value: value.sigmoid(),
    "tanh": lambda value: value.tanh(),
}


@definition("_int8_pack")
def int8_pack(weight: Any) -> Any:
    """Devices without the kernels read weights as they are."""
    return weight.new_empty(0, dtype=fl.uint8)


@definition("_int8_convolution_pack")
def int8_convolution_pack(weight: Any, groups: int) -> Any:
    return int8_pack(weight)


def _exact_dtype(weight: Any) -> fl.dtype:
    """The floating point type that holds all sums of products of an input with a row of the weight."""
    return fl.float32 if weight[0].numel() * 255 * 128 < _EXACT else fl.float64


def _centered(weight: Any, zero_points: Any) -> Any:
    whole = weight.to(fl.int32)
    if zero_points is not None:
        whole = whole - zero_points.reshape(-1, *[1] * (weight.dim() - 1)).to(fl.int32)
    return whole.to(_exact_dtype(weight))


def _values(total: Any, channel: int, step: Any, bias: Any, post_op: str, other: Any) -> Any:
    """Exact sums as values, and what follows them."""
    shape = [-1 if d == channel else 1 for d in range(total.dim())]
    value = total.float() * step.reshape(shape)
    if bias is not None:
        value = value + bias.reshape(shape)
    if other is not None:
        value = value + other
    return _ACTIVATIONS[post_op.removeprefix("add").removeprefix("_")](value)


def _on_grid(value: Any, scale: float, zero_point: int, dtype: fl.dtype | None) -> Any:
    if dtype is None or dtype.is_floating_point:
        return value if dtype is None else value.to(dtype)
    bounds = fl.iinfo(dtype)
    return ((value * (1.0 / scale)).round() + zero_point).clamp(bounds.min, bounds.max).to(dtype)


def _other(other: Any, scale: float, zero_point: int) -> Any:
    if other is None or other.is_floating_point():
        return other
    return (other.to(fl.int32) - zero_point).float() * scale


@definition("_int8_linear")
def int8_linear(
    input: Any, input_scale: float, input_zero_point: int, weight: Any, packed: Any, weight_scales: Any,
    weight_zero_points: Any, bias: Any, output_scale: float, output_zero_point: int, output_dtype: Any = None,
    post_op: str = "none", other: Any = None, other_scale: float = 1.0, other_zero_point: int = 0,
) -> Any:  # fmt: skip
    centered = _centered(weight, weight_zero_points)
    total = fl.nn.functional.linear((input.to(fl.int32) - input_zero_point).to(centered.dtype), centered)
    step = weight_scales.reshape(-1).float() * input_scale
    value = _values(total, total.dim() - 1, step, bias, post_op, _other(other, other_scale, other_zero_point))
    return _on_grid(value, output_scale, output_zero_point, output_dtype)


@definition("_int8_convolution")
def int8_convolution(
    input: Any, input_scale: float, input_zero_point: int, weight: Any, packed: Any, weight_scales: Any,
    weight_zero_points: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int, output_scale: float, output_zero_point: int, output_dtype: Any = None, post_op: str = "none",
    other: Any = None, other_scale: float = 1.0, other_zero_point: int = 0,
) -> Any:  # fmt: skip
    centered = _centered(weight, weight_zero_points)
    convolve = {3: fl.nn.functional.conv1d, 4: fl.nn.functional.conv2d, 5: fl.nn.functional.conv3d}[weight.dim()]
    shifted = (input.to(fl.int32) - input_zero_point).to(centered.dtype)
    total = convolve(shifted, centered, None, stride, padding, dilation, groups)
    step = weight_scales.reshape(-1).float() * input_scale
    value = _values(total, 1, step, bias, post_op, _other(other, other_scale, other_zero_point))
    result = _on_grid(value, output_scale, output_zero_point, output_dtype)
    return result.movedim(1, -1).contiguous().movedim(-1, 1)  # channels last in memory


@definition("_int8_linear_dynamic")
def int8_linear_dynamic(
    input: Any, weight: Any, packed: Any, weight_scales: Any, weight_zero_points: Any, bias: Any,
    reduce_range: bool = True, per_row: bool = False, post_op: str = "none",
) -> Any:  # fmt: skip
    dims = (-1,) if per_row else tuple(range(input.dim()))
    wide, top = input.float(), 127 if reduce_range else 255
    low, high = wide.amin(dims, keepdim=True).clamp(max=0.0), wide.amax(dims, keepdim=True).clamp(min=0.0)
    scale = (high.double() - low.double()) / top
    scale = fl.where(scale.float() == 0, fl.full_like(scale, 0.1), scale)
    zero_point = (-low.double() / scale).round().clamp(0, top)
    scale = scale.clamp(min=_SMALLEST_STEP).float()
    places = ((wide * (1.0 / scale)).round() + zero_point).clamp(0, top)
    centered = _centered(weight, weight_zero_points)
    total = fl.nn.functional.linear((places - zero_point).to(centered.dtype), centered)
    value = total.float() * (weight_scales.reshape(-1).float() * scale)
    if bias is not None:
        value = value + bias
    return _ACTIVATIONS[post_op](value).to(input.dtype)


@definition("_weight_int8pack_mm")
def weight_int8pack_mm(self: Any, mat2: Any, scales: Any) -> Any:
    return fl.mm(self.float(), (mat2.float() * scales.float().unsqueeze(1)).t()).to(self.dtype)


@definition("_convert_weight_to_int4pack_for_cpu")
def convert_weight_to_int4pack(self: Any, innerKTiles: int) -> Any:
    """In panels of 16 rows: of each four numbers of a row two bytes, of elements 0 and 2 and of 1 and 3."""
    n, k = self.shape
    numbers = self.reshape(n // 16, 16, k // 4, 4).permute(0, 2, 1, 3)
    return (numbers[..., :2] + numbers[..., 2:] * 16).to(fl.uint8).reshape(n, k // 2)


@definition("_weight_int4pack_mm_for_cpu")
def weight_int4pack_mm(self: Any, mat2: Any, qGroupSize: int, qScaleAndZeros: Any) -> Any:
    n, k = mat2.shape[0], mat2.shape[1] * 2
    pairs = mat2.to(fl.int32).reshape(n // 16, k // 4, 16, 2)
    numbers = fl.cat([pairs % 16, pairs // 16], -1).permute(0, 2, 1, 3).reshape(n, k).float()
    grids = qScaleAndZeros.float().repeat_interleave(qGroupSize, 0)[:k]
    values = (numbers - 8) * grids[..., 0].t()
    if grids.shape[2] == 2:
        values = values + grids[..., 1].t()
    return fl.mm(self.float(), values.t()).to(self.dtype)
