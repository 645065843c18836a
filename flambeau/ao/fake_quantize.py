"""Rounding to the grid of a quantized tensor, in floating point: for training that knows of quantization.

Gradients pass where a value lies on the grid's range and are zero elsewhere.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.autograd import Function

__all__ = [
    "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine",
]


class _FakeQuantize(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Tensor:
        places = (input * (1.0 / scale)).round() + zero_point
        ctx.save_for_backward((places >= low) & (places <= high))
        return ((places.clamp(low, high) - zero_point) * scale).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (inside,) = ctx.saved_tensors
        return grad * inside, None, None, None, None


def _check(name: str, input: Tensor, low: int, high: int) -> None:
    if not input.is_floating_point():
        raise RuntimeError(f"[{name}] expected a floating point tensor, got {input.dtype}")
    if low > high:
        raise RuntimeError(f"[{name}] expected quant_min <= quant_max, got {low} and {high}")


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int
) -> Tensor:
    """The nearest of the numbers `(i - zero_point) * scale` with `quant_min <= i <= quant_max`."""
    _check("fake_quantize_per_tensor_affine", input, quant_min, quant_max)
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError(
            f"[fake_quantize_per_tensor_affine] expected zero_point between {quant_min} and {quant_max}, got {zero_point}"
        )
    if isinstance(scale, Tensor):
        scale = scale.detach().reshape(())
    if isinstance(zero_point, Tensor):
        zero_point = zero_point.detach().reshape(())
    return _FakeQuantize.apply(input, scale, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """The same with a scale and a zero point for each index of a dimension."""
    name = "fake_quantize_per_channel_affine"
    _check(name, input, quant_min, quant_max)
    if not 0 <= axis < input.dim():
        raise RuntimeError(f"[{name}] expected axis in [0, {input.dim() - 1}], got {axis}")
    if scale.dim() != 1 or zero_point.dim() != 1 or len(scale) != len(zero_point) or len(scale) != input.shape[axis]:
        raise RuntimeError(
            f"[{name}] expected {input.shape[axis]} scales and zero points, got shapes {tuple(scale.shape)} and "
            f"{tuple(zero_point.shape)}"
        )
    shape = [-1 if i == axis else 1 for i in range(input.dim())]
    low_or_high = fl.logical_or(zero_point < quant_min, zero_point > quant_max)
    if not zero_point.is_floating_point() and not zero_point.is_meta and bool(low_or_high.any()):
        raise RuntimeError(f"[{name}] expected zero points between {quant_min} and {quant_max}")
    return _FakeQuantize.apply(input, scale.detach().view(shape), zero_point.detach().view(shape), quant_min, quant_max)
