"""Products and convolutions of 8-bit integers, with a bias, an activation and the grid of the result.

The arguments are plain tensors of integers with their scales and zero points beside them. The kernels add up in 32-bit
integers; the definitions (`definitions.py`) compute with floating point numbers that hold every sum exactly. The
value before rounding is `sum * (input_scale * weight_scale) + bias` in float32, then `post_op`:

    none  relu  gelu  gelu_tanh  silu  sigmoid  tanh  add (of `other`)  add_relu  add_gelu ...

`output_dtype` is None or float32 for the value itself, int8 or uint8 for the nearest number of the result's grid.
"""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native, tag

# ---------------------------------------------------------------- kernels of the CPU (csrc/cpu/quantized)

# Weights of int8, (n, k), rearranged as the kernels read them; `packed` below is its result, or None to do it in the call.
native("_int8_pack(Tensor weight) -> Tensor")
native(
    "_int8_linear(Tensor input, float input_scale, int input_zero_point, Tensor weight, Tensor? packed, "
    "Tensor weight_scales, Tensor? weight_zero_points, Tensor? bias, float output_scale, int output_zero_point, "
    "dtype? output_dtype=None, str post_op='none', Tensor? other=None, float other_scale=1.0, int other_zero_point=0) "
    "-> Tensor"
)
native(
    "_int8_linear_dynamic(Tensor input, Tensor weight, Tensor? packed, Tensor weight_scales, Tensor? weight_zero_points, "
    "Tensor? bias, bool reduce_range=True, bool per_row=False, str post_op='none') -> Tensor"
)

native("_int8_convolution_pack(Tensor weight, int groups) -> Tensor")
native(
    "_int8_convolution(Tensor input, float input_scale, int input_zero_point, Tensor weight, Tensor? packed, "
    "Tensor weight_scales, Tensor? weight_zero_points, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
    "int groups, float output_scale, int output_zero_point, dtype? output_dtype=None, str post_op='none', "
    "Tensor? other=None, float other_scale=1.0, int other_zero_point=0) -> Tensor"
)

# Floats times weights of eight or four bits. Numbers of four bits lie as `_convert_weight_to_int4pack_for_cpu` leaves
# them: (n, k / 2) bytes, in an order of our own.
native("_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor")
native("_convert_weight_to_int4pack_for_cpu(Tensor self, int innerKTiles) -> Tensor")
native("_weight_int4pack_mm_for_cpu(Tensor self, Tensor mat2, int qGroupSize, Tensor qScaleAndZeros) -> Tensor")

# ---------------------------------------------------------------- from calls of graphs to kernels

# Weights are packed by a call of its own, which compiled graphs make once for weights that stay.


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
    return fl._ops._int8_linear(
        input, input_scale, input_zero_point, weight, fl._ops._int8_pack(weight), weight_scales, weight_zero_points,
        bias, output_scale, output_zero_point, output_dtype, post_op, other
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
    return fl._ops._int8_convolution(
        input, input_scale, input_zero_point, weight, fl._ops._int8_convolution_pack(weight, groups), weight_scales,
        weight_zero_points, bias, stride, padding, dilation, groups, output_scale, output_zero_point, output_dtype,
        post_op, other
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
    return fl._ops._int8_linear_dynamic(
        input, weight, fl._ops._int8_pack(weight), weight_scales, weight_zero_points, bias, reduce_range, False, post_op
    )


_SMALLEST_STEP = 6.1e-5  # of grids that are chosen from a range while a model runs


@composite(results="places scale zero_point")
def _quantized_dynamically(input: fl.Tensor, reduce_range: bool = True) -> tuple[fl.Tensor, fl.Tensor, fl.Tensor]:
    """A tensor of float32 as uint8, on a grid between its smallest and largest value that has zero on it."""
    top = 127 if reduce_range else 255
    input = input.detach()
    if input.numel() == 0:
        return input.to(fl.uint8), input.new_ones(()), input.new_zeros((), dtype=fl.int32)
    low, high = input.amin().clamp(max=0.0), input.amax().clamp(min=0.0)
    scale = (high.double() - low.double()) / top
    scale = fl.where(scale.float() == 0, fl.full_like(scale, 0.1), scale).clamp(min=_SMALLEST_STEP).float()
    zero_point = (-low.double() / scale.double()).round().clamp(0, top).to(fl.int32)
    places = ((input * (1.0 / scale)).round() + zero_point).clamp(0, top)
    return places.to(fl.uint8), scale, zero_point


tag("no_grad", "_quantized_dynamically")
tag("recomputable", "_int8_pack _int8_convolution_pack")
