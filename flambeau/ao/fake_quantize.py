"""Rounding to the grid of a quantized tensor, in floating point: for training that knows of quantization.

Gradients pass where a value lies on the grid's range and are zero elsewhere.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.autograd import Function

__all__ = [
    "_fake_quantize_learnable_per_channel_affine",
    "_fake_quantize_learnable_per_tensor_affine",
    "fake_quantize_per_channel_affine",
    "fake_quantize_per_tensor_affine",
    "fused_moving_avg_obs_fake_quant",
]


SMALLEST_STEP = float(fl.tensor(6.1e-5))  # of grids that are chosen from a range while a model runs


class _FakeQuantize(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Tensor:
        if isinstance(zero_point, Tensor) and zero_point.is_floating_point():  # it need not be on the grid
            places = (input * (1.0 / scale) + zero_point).round()
        else:
            places = (input * (1.0 / scale)).round() + zero_point
        ctx.save_for_backward((places >= low) & (places <= high))
        result = (places.clamp(low, high) - zero_point) * scale
        is_one_grid = not isinstance(scale, Tensor) or scale.numel() == 1
        if input.dtype is fl.float64 and is_one_grid:
            result = result.float()  # a grid with one scale has values of single precision
        return result.to(input.dtype)

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
    """The nearest of the numbers `(i - zero_point) * scale` with `quant_min <= i <= quant_max`.

    >>> flambeau.fake_quantize_per_tensor_affine(flambeau.tensor([0.12, 9.0]), 0.1, 0, 0, 10)
    tensor([0.1000, 1.0000])
    """
    _check("fake_quantize_per_tensor_affine", input, quant_min, quant_max)
    if not isinstance(zero_point, Tensor) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError(
            f"[fake_quantize_per_tensor_affine] expected zero_point between {quant_min} and {quant_max}, got {zero_point}"
        )
    one = [
        1
    ] * input.dim()  # as many dimensions as the input, so that 16-bit values are computed with in single precision
    if isinstance(scale, Tensor):
        scale = scale.detach().reshape(one)
    elif input.dtype is not fl.float32:
        scale = fl.full(one, scale, dtype=fl.float32, device=input.device)
    if isinstance(zero_point, Tensor):
        zero_point = zero_point.detach().reshape(one)
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
    if scale.dtype not in (fl.float32, fl.bfloat16):
        raise RuntimeError(f"[{name}] expected scales of float32 or bfloat16, got {scale.dtype}")
    shape = [-1 if i == axis else 1 for i in range(input.dim())]
    low_or_high = fl.logical_or(zero_point < quant_min, zero_point > quant_max)
    if not zero_point.is_floating_point() and not zero_point.is_meta and bool(low_or_high.any()):
        raise RuntimeError(f"[{name}] expected zero points between {quant_min} and {quant_max}")
    return _FakeQuantize.apply(input, scale.detach().view(shape), zero_point.detach().view(shape), quant_min, quant_max)


class _Learned(Function):
    """The gradient of the scale is the rounding error in steps inside the range, and the end of the range outside."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, scale: Tensor, zero_point: Tensor, shape: list[int], low: int, high: int, factor: float
    ) -> Tensor:
        step = scale.view(shape)
        zero = zero_point.view(shape).round().clamp(low, high)
        places = (input * (1.0 / step)).round() + zero
        ctx.save_for_backward(input, scale, zero_point)
        ctx.settings = shape, low, high, factor
        return ((places.clamp(low, high) - zero) * step).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        input, scale, zero_point = ctx.saved_tensors
        shape, low, high, factor = ctx.settings
        step = scale.view(shape)
        zero = zero_point.view(shape).round().clamp(low, high)
        places = (input * (1.0 / step)).round() + zero
        below, above = places < low, places > high
        inside = ~(below | above)
        error = ((places - zero) * step - input) / step
        by_scale = fl.where(inside, error, fl.where(below, low - zero, high - zero)) * grad * factor
        by_zero = fl.where(inside, fl.zeros_like(grad), -step * grad) * factor
        others = [d for d, n in enumerate(shape) if n == 1]
        if len(shape) == 1 and scale.numel() == 1:
            others = list(range(input.dim()))
        to_scale = by_scale.sum(others).reshape(scale.shape)
        to_zero = by_zero.sum(others).reshape(zero_point.shape).to(zero_point.dtype)
        return grad * inside, to_scale, to_zero, None, None, None, None


def _fake_quantize_learnable_per_tensor_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0
) -> Tensor:
    """Fake quantization whose scale and zero point are trained."""
    _check("fake_quantize_learnable", input, quant_min, quant_max)
    return _Learned.apply(input, scale, zero_point, [1], quant_min, quant_max, grad_factor)


def _fake_quantize_learnable_per_channel_affine(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Tensor:
    """The same with a scale and a zero point for each index of a dimension."""
    _check("fake_quantize_learnable", input, quant_min, quant_max)
    shape = [-1 if i == axis else 1 for i in range(input.dim())]
    return _Learned.apply(input, scale, zero_point, shape, quant_min, quant_max, grad_factor)


def fused_moving_avg_obs_fake_quant(
    x: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int = -1,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> Tensor:
    """Notes the range of x as a moving average, sets scale and zero point by it, and rounds x to the grid."""
    if bool(observer_on) and x.numel():
        rows = (
            x.detach().float().movedim(ch_axis, 0).flatten(1)
            if per_row_fake_quant
            else x.detach().float().reshape(1, -1)
        )
        _note(rows.amin(1), rows.amax(1), running_min, running_max, averaging_const)
        _set_grid(running_min, running_max, scale, zero_point, quant_min, quant_max, symmetric_quant)
    if not bool(fake_quant_on):
        return x
    if per_row_fake_quant:
        return fake_quantize_per_channel_affine(x, scale, zero_point, ch_axis, quant_min, quant_max)
    return fake_quantize_per_tensor_affine(x, scale, zero_point, quant_min, quant_max)


def _note(low: Tensor, high: Tensor, running_min: Tensor, running_max: Tensor, constant: float) -> None:
    shape = low.shape if running_min.dim() else ()
    first = running_min.numel() != low.numel() or bool(fl.isinf(running_min).all())
    for running, value in ((running_min, low), (running_max, high)):
        if first:
            running.resize_(shape).copy_(value.reshape(shape))
        else:
            running.add_(constant * (value.reshape(running.shape) - running))


def _set_grid(
    low: Tensor, high: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, symmetric: bool
) -> None:
    low, high = low.reshape(-1).double().clamp(max=0.0), high.reshape(-1).double().clamp(min=0.0)
    both = (low < 0) & (high > 0) if symmetric else fl.zeros_like(low, dtype=fl.bool)
    half = (quant_max - quant_min) // 2
    reach = fl.maximum(low / -(half + 1), high / half)
    low, high = fl.where(both, reach * -(half + 1), low), fl.where(both, reach * half, high)
    step = (high - low) / (quant_max - quant_min)
    step = fl.where(step.float() == 0, fl.full_like(step, 0.1), step)
    stretch = (SMALLEST_STEP / step).clamp(min=1.0)
    step, low, high = step * stretch, low * stretch, high * stretch
    from_low, from_high = quant_min - low / step, quant_max - high / step
    nearer = abs(quant_min) - (low / step).abs() < abs(quant_max) - (high / step).abs()
    zero = fl.where(nearer, from_low, from_high)
    zero = fl.where(both, fl.full_like(zero, (quant_min + quant_max) / 2), zero).round().clamp(quant_min, quant_max)
    scale.resize_(step.shape).copy_(step)
    zero_point.resize_(zero.shape).copy_(zero)
