"""Products and convolutions of 8-bit integers, with a bias, an activation and the grid of the result.

The arguments are plain tensors of integers with their scales and zero points beside them. The definitions compute with
floating point numbers that hold every sum of products exactly; a kernel may accumulate in 32-bit integers instead. The
value before rounding is `sum * (input_scale * weight_scale) + bias` in float32, then `post_op`:

    none  relu  gelu  gelu_tanh  silu  add (of `other`)  add_relu

`output_dtype` is None or float32 for the value itself, int8 or uint8 for the nearest number of the result's grid.
"""

from __future__ import annotations

from collections.abc import Callable

import flambeau as fl
from flambeau.ops.record import composite, tag

_EXACT = 1 << 24  # integers that float32 holds
_SMALLEST_STEP = 6.1e-5  # of grids that are chosen from a range while a model runs


def _exact_dtype(weight: fl.Tensor) -> fl.dtype:
    """The floating point type that holds all sums of products of an input with a row of the weight."""
    return fl.float32 if weight[0].numel() * 255 * 128 < _EXACT else fl.float64


def _per_row(values: fl.Tensor, weight: fl.Tensor) -> fl.Tensor:
    return values.reshape(-1, *[1] * (weight.dim() - 1))


def _check(op: str, input: fl.Tensor, weight: fl.Tensor, scales: fl.Tensor, post_op: str, other: object) -> None:
    if input.dtype not in (fl.uint8, fl.int8) or weight.dtype != fl.int8:
        raise RuntimeError(
            f"[{op}] expected an input of uint8 or int8 and a weight of int8, got {input.dtype} and {weight.dtype}"
        )
    if scales.numel() not in (1, weight.shape[0]):
        raise RuntimeError(f"[{op}] expected 1 or {weight.shape[0]} weight scales, got {scales.numel()}")
    if post_op not in _POST_OPS:
        raise RuntimeError(f"[{op}] expected a post_op among {', '.join(_POST_OPS)}, got {post_op!r}")
    if post_op.startswith("add") != (other is not None):
        raise RuntimeError(f"[{op}] expected `other` exactly with post_op add and add_relu, got {post_op!r}")


_POST_OPS: dict[str, Callable[..., fl.Tensor]] = {
    "none": lambda value, other: value,
    "relu": lambda value, other: value.relu(),
    "gelu": lambda value, other: fl.nn.functional.gelu(value),
    "gelu_tanh": lambda value, other: fl.nn.functional.gelu(value, approximate="tanh"),
    "silu": lambda value, other: fl.nn.functional.silu(value),
    "add": lambda value, other: value + other,
    "add_relu": lambda value, other: (value + other).relu(),
}


def _finished(
    total: fl.Tensor,
    channel: int,
    step: fl.Tensor,
    bias: fl.Tensor | None,
    output_scale: float,
    output_zero_point: int,
    output_dtype: fl.dtype | None,
    post_op: str,
    other: fl.Tensor | None,
) -> fl.Tensor:
    """From exact sums to values, and on to the grid of the result."""
    shape = [-1 if d == channel else 1 for d in range(total.dim())]
    value = total.float() * step.reshape(shape)
    if bias is not None:
        value = value + bias.reshape(shape)
    value = _POST_OPS[post_op](value, other)
    if output_dtype is None or output_dtype == fl.float32:
        return value
    bounds = fl.iinfo(output_dtype)
    places = (value * (1.0 / output_scale)).round() + output_zero_point
    return places.clamp(bounds.min, bounds.max).to(output_dtype)


@composite()
def _quantized_linear(
    input: fl.Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: fl.Tensor,
    weight_scales: fl.Tensor,
    weight_zero_points: fl.Tensor,
    bias: fl.Tensor | None,
    output_scale: float,
    output_zero_point: int,
    output_dtype: fl.dtype | None = None,
    post_op: str = "none",
    other: fl.Tensor | None = None,
) -> fl.Tensor:
    _check("quantized_linear", input, weight, weight_scales, post_op, other)
    exact = _exact_dtype(weight)
    shifted = (input.to(fl.int32) - input_zero_point).to(exact)
    centered = (weight.to(fl.int32) - _per_row(weight_zero_points, weight).to(fl.int32)).to(exact)
    total = fl.nn.functional.linear(shifted, centered)
    step = weight_scales.reshape(-1).float() * input_scale
    return _finished(
        total, total.dim() - 1, step, bias, output_scale, output_zero_point, output_dtype, post_op, other
    )  # fmt: skip


@composite()
def _quantized_conv(
    input: fl.Tensor,
    input_scale: float,
    input_zero_point: int,
    weight: fl.Tensor,
    weight_scales: fl.Tensor,
    weight_zero_points: fl.Tensor,
    bias: fl.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    output_scale: float,
    output_zero_point: int,
    output_dtype: fl.dtype | None = None,
    post_op: str = "none",
    other: fl.Tensor | None = None,
) -> fl.Tensor:
    """Padding is the value zero."""
    _check("quantized_conv", input, weight, weight_scales, post_op, other)
    exact = _exact_dtype(weight)
    shifted = (input.to(fl.int32) - input_zero_point).to(exact)
    centered = (weight.to(fl.int32) - _per_row(weight_zero_points, weight).to(fl.int32)).to(exact)
    convolve = {3: fl.nn.functional.conv1d, 4: fl.nn.functional.conv2d, 5: fl.nn.functional.conv3d}[weight.dim()]
    total = convolve(shifted, centered, None, stride, padding, dilation, groups)
    step = weight_scales.reshape(-1).float() * input_scale
    return _finished(
        total, total.dim() + 1 - weight.dim(), step, bias, output_scale, output_zero_point, output_dtype, post_op, other
    )  # fmt: skip


@composite()
def _quantized_linear_dynamic(
    input: fl.Tensor,
    weight: fl.Tensor,
    weight_scales: fl.Tensor,
    weight_zero_points: fl.Tensor,
    bias: fl.Tensor | None,
    reduce_range: bool = True,
    post_op: str = "none",
) -> fl.Tensor:
    """The same for an input of float32, which is put on a grid of uint8 between its smallest and largest value.

    With `reduce_range` the grid has 128 places, so that sums of two products fit into 16 bits.
    """
    places, scale, zero_point = fl._ops._quantized_dynamically(input, reduce_range)
    exact = _exact_dtype(weight)
    shifted = (places.to(fl.int32) - zero_point).to(exact)
    centered = (weight.to(fl.int32) - _per_row(weight_zero_points, weight).to(fl.int32)).to(exact)
    total = fl.nn.functional.linear(shifted, centered)
    step = weight_scales.reshape(-1).float() * scale
    return _finished(total, total.dim() - 1, step, bias, 1.0, 0, None, post_op, None)


@composite(results="places scale zero_point")
def _quantized_dynamically(input: fl.Tensor, reduce_range: bool = True) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    """A tensor of float32 as uint8, on a grid between its smallest and largest value that has zero on it."""
    top = 127 if reduce_range else 255
    if input.numel() == 0:
        return input.to(fl.uint8), input.new_ones(()), input.new_zeros((), dtype=fl.int32)
    low, high = input.amin().clamp(max=0.0), input.amax().clamp(min=0.0)
    scale = (high.double() - low.double()) / top
    scale = fl.where(scale.float() == 0, fl.full_like(scale, 0.1), scale).clamp(min=_SMALLEST_STEP).float()
    zero_point = (-low.double() / scale.double()).round().clamp(0, top).to(fl.int32)
    places = ((input * (1.0 / scale)).round() + zero_point).clamp(0, top)
    return places.to(fl.uint8), scale, zero_point


tag("no_grad", "_quantized_linear _quantized_conv _quantized_dynamically")
