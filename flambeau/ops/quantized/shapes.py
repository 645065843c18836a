"""Shape rules of products of quantized numbers."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints, equal_sizes
from flambeau.ops.rules import shape


@shape("_int8_linear", "_int8_linear_dynamic")
def int8_linear(input: Geometry, weight: Geometry) -> Ints:
    equal_sizes(input.sizes[-1], weight.sizes[1], "_int8_linear")
    return (*input.sizes[:-1], weight.sizes[0])


@shape("_int8_convolution")
def int8_convolution(input: Geometry, weight: Geometry, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    spatial = []
    for d in range(2, len(weight.sizes)):
        reach = input.sizes[d] + 2 * _of(padding, d) - _of(dilation, d) * (weight.sizes[d] - 1) - 1
        spatial.append(reach // _of(stride, d) + 1)
    return (input.sizes[0], weight.sizes[0], *spatial)


def _of(values: Ints, d: int) -> int:
    return values[0] if len(values) == 1 else values[d - 2]


@shape(
    "quantized_decomposed::quantize_per_tensor", "quantized_decomposed::quantize_per_tensor.tensor",
    "quantized_decomposed::quantize_per_tensor.tensor2", "quantized_decomposed::dequantize_per_tensor",
    "quantized_decomposed::dequantize_per_tensor.tensor", "quantized_decomposed::dequantize_per_tensor.tensor2",
    "quantized_decomposed::quantize_per_channel", "quantized_decomposed::dequantize_per_channel",
    "quantized_decomposed::quantize_per_token", "quantized_decomposed::dequantize_per_token",
    "quantized_decomposed::quantize_per_channel_group", "quantized_decomposed::dequantize_per_channel_group",
)  # fmt: skip
def rounded(input: Geometry) -> Ints:
    return input.sizes


@shape("quantized_decomposed::choose_qparams.tensor", "quantized_decomposed::choose_qparams_symmetric.tensor")
def choose_qparams(input: Geometry) -> list[Ints]:
    return [(1,), (1,)]


@shape("quantized_decomposed::choose_qparams_per_token", "quantized_decomposed::choose_qparams_per_token_asymmetric")
def choose_qparams_per_token(input: Geometry) -> list[Ints]:
    sizes = (*input.sizes[:-1], 1)
    return [sizes, sizes]


@shape("_weight_int8pack_mm", "_weight_int4pack_mm_for_cpu")
def weight_only(self: Geometry, mat2: Geometry) -> Ints:
    return (self.sizes[0], mat2.sizes[0])


@shape("_convert_weight_to_int4pack_for_cpu")
def convert_weight_to_int4pack(self: Geometry) -> Ints:
    return (self.sizes[0], self.sizes[1] // 2)
