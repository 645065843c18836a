"""Rounding to grids and back, in terms of other operators: what `quantized_decomposed::*` compute.

The compiler takes these functions in place of the operators, so that the arithmetic fuses with what is around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl

__all__ = [
    "FUNCTIONS",
    "dequantize_per_channel",
    "dequantize_per_tensor",
    "quantize_per_channel",
    "quantize_per_tensor",
]


def _rounded(x: fl.Tensor, scale: Any, zero_point: Any, low: Any, high: Any, dtype: Any) -> fl.Tensor:
    return ((x * (1.0 / scale)).round() + zero_point).clamp(low, high).to(dtype)


def _spread(values: fl.Tensor, x: fl.Tensor, axis: int) -> fl.Tensor:
    return values.reshape([-1 if d == axis else 1 for d in range(x.dim())])


def quantize_per_tensor(x: fl.Tensor, scale: Any, zero_point: Any, low: Any, high: Any, dtype: Any) -> fl.Tensor:
    return _rounded(x.float(), scale, zero_point, low, high, dtype)


def dequantize_per_tensor(
    x: fl.Tensor, scale: Any, zero_point: Any, low: Any, high: Any, dtype: Any, *, out_dtype: Any = None
) -> fl.Tensor:
    return ((x.float() - zero_point) * scale).to(out_dtype or fl.float32)


def quantize_per_channel(
    x: fl.Tensor, scales: fl.Tensor, zero_points: fl.Tensor, axis: int, low: int, high: int, dtype: Any
) -> fl.Tensor:
    return _rounded(x.float(), _spread(scales, x, axis), _spread(zero_points, x, axis), low, high, dtype)


def dequantize_per_channel(
    x: fl.Tensor, scales: fl.Tensor, zero_points: fl.Tensor | None, axis: int, low: int, high: int, dtype: Any, *,
    out_dtype: Any = None,
) -> fl.Tensor:  # fmt: skip
    values = x.float() if zero_points is None else x.float() - _spread(zero_points, x, axis)
    return (values * _spread(scales, x, axis)).to(out_dtype or fl.float32)


def choose_qparams(x: fl.Tensor, low: int, high: int, eps: float, dtype: Any) -> tuple[fl.Tensor, fl.Tensor]:
    """The grid between the smallest and the largest value, with zero on it."""
    least, most = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = ((most - least) / float(high - low)).clamp(min=eps)
    zero_point = (low - (least / scale).round()).clamp(low, high)
    return scale.double().reshape(1), zero_point.long().reshape(1)


def choose_qparams_symmetric(x: fl.Tensor, low: int, high: int, eps: float, dtype: Any) -> tuple[fl.Tensor, fl.Tensor]:
    """The grid that reaches as far to either side as the largest value."""
    scale = (x.abs().amax() / (float(high - low) / 2)).clamp(min=eps)
    zero_point = fl.full((1,), 128 if dtype == fl.uint8 else 0, dtype=fl.int64, device=x.device)
    return scale.double().reshape(1), zero_point


def choose_qparams_per_token(x: fl.Tensor, dtype: Any) -> tuple[fl.Tensor, fl.Tensor]:
    """A symmetric grid of int8 for each row."""
    scales = x.abs().amax(-1, keepdim=True)
    scales = scales.float() if scales.dtype == fl.float16 else scales
    scales = scales.clamp(min=1e-5) / 127
    return scales, fl.zeros_like(scales)


def choose_qparams_per_token_asymmetric(x: fl.Tensor, dtype: Any) -> tuple[fl.Tensor, fl.Tensor]:
    """A grid of int8 for each row, between its smallest and its largest value."""
    low, high = -128, 127
    least, most = x.amin(-1, keepdim=True).clamp(max=0.0), x.amax(-1, keepdim=True).clamp(min=0.0)
    scale = ((most - least) / float(high - low)).clamp(min=fl.finfo(fl.float32).eps)
    from_least, from_most = low - least / scale, high - most / scale
    nearer = (low + least / scale) + (high + most / scale) > 0
    zero_point = fl.where(nearer, from_least, from_most).clamp(low, high).round()
    return scale.float(), zero_point.float()


def quantize_per_token(
    x: fl.Tensor, scales: fl.Tensor, zero_points: fl.Tensor, low: int, high: int, dtype: Any
) -> fl.Tensor:
    return (x * (1.0 / scales) + zero_points).round().clamp(low, high).to(dtype)


def dequantize_per_token(
    x: fl.Tensor, scales: fl.Tensor, zero_points: fl.Tensor, low: int, high: int, dtype: Any, output_dtype: Any = None
) -> fl.Tensor:
    return ((x - zero_points) * scales).to(output_dtype or fl.float32)


def quantize_per_channel_group(
    x: fl.Tensor, scales: fl.Tensor, zero_points: fl.Tensor, low: int, high: int, dtype: Any, group_size: int = 128
) -> fl.Tensor:
    groups = x.reshape(-1, min(group_size, x.shape[-1]))
    places = (groups * (1.0 / scales.reshape(-1, 1))).round() + zero_points.reshape(-1, 1)
    return places.clamp(low, high).to(dtype).reshape(x.shape)


def dequantize_per_channel_group(
    x: fl.Tensor, scales: fl.Tensor, zero_points: fl.Tensor | None, low: int, high: int, dtype: Any, group_size: int = 128,
    output_dtype: Any = None,
) -> fl.Tensor:  # fmt: skip
    groups = x.reshape(-1, min(group_size, x.shape[-1])).float()
    shift = 0 if zero_points is None else zero_points.reshape(-1, 1)
    return ((groups - shift) * scales.reshape(-1, 1)).reshape(x.shape).to(output_dtype or fl.float32)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        quantize_per_tensor, dequantize_per_tensor, quantize_per_channel, dequantize_per_channel, choose_qparams,
        choose_qparams_symmetric, choose_qparams_per_token, choose_qparams_per_token_asymmetric, quantize_per_token,
        dequantize_per_token, quantize_per_channel_group, dequantize_per_channel_group,
    )
}  # fmt: skip
