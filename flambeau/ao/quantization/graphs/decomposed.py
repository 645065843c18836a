"""The operators `quantized_decomposed::*`: from floating point to integers and back, on plain tensors.

They are what exported programs contain after quantization. Their arithmetic is in `flambeau.ops.quantized.arithmetic`, which the
compiler uses as well.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.library import Library
from flambeau.ops.quantized import arithmetic

__all__ = ["quantized_decomposed_lib"]

quantized_decomposed_lib = Library("quantized_decomposed", "DEF")

_TAIL = "int quant_min, int quant_max, ScalarType dtype"
_OUT = "*, ScalarType? out_dtype=None"
_SCHEMAS = {
    "quantize_per_tensor": f"quantize_per_tensor(Tensor input, float scale, int zero_point, {_TAIL}) -> Tensor",
    "quantize_per_tensor.tensor": f"quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, {_TAIL}) -> Tensor",
    "quantize_per_tensor.tensor2": (
        "quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, "
        "ScalarType dtype) -> Tensor"
    ),
    "dequantize_per_tensor": f"dequantize_per_tensor(Tensor input, float scale, int zero_point, {_TAIL}, {_OUT}) -> Tensor",
    "dequantize_per_tensor.tensor": (
        f"dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, {_TAIL}, {_OUT}) -> Tensor"
    ),
    "dequantize_per_tensor.tensor2": (
        "dequantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, "
        f"ScalarType dtype, {_OUT}) -> Tensor"
    ),
    "quantize_per_channel": (
        f"quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, {_TAIL}) -> Tensor"
    ),
    "dequantize_per_channel": (
        f"dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, {_TAIL}, {_OUT}) -> Tensor"
    ),
    "choose_qparams.tensor": (
        "choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)"
    ),
    "choose_qparams_symmetric.tensor": (
        "choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) "
        "-> (Tensor, Tensor)"
    ),
    "choose_qparams_per_token": "choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)",
    "choose_qparams_per_token_asymmetric": (
        "choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)"
    ),
    "quantize_per_token": f"quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, {_TAIL}) -> Tensor",
    "dequantize_per_token": (
        f"dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, {_TAIL}, ScalarType output_dtype) -> Tensor"
    ),
    "quantize_per_channel_group": (
        f"quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, {_TAIL}, int group_size) -> Tensor"
    ),
    "dequantize_per_channel_group": (
        "dequantize_per_channel_group(Tensor input, Tensor scales, Tensor? zero_points, int quant_min, int quant_max, "
        "ScalarType dtype, int group_size, ScalarType output_dtype) -> Tensor"
    ),
}  # fmt: skip


def _fake(function: Any) -> Any:
    """Shapes are those of the arithmetic on tensors without data."""
    return lambda *args, **kwargs: function(*args, **kwargs)


for _name, _schema in _SCHEMAS.items():
    quantized_decomposed_lib.define(_schema)
    _function = arithmetic.FUNCTIONS[_name.partition(".")[0]]
    quantized_decomposed_lib.impl(_name, _function, "CompositeExplicitAutograd")
    fl.library.register_fake(f"quantized_decomposed::{_name}", _fake(_function), lib=quantized_decomposed_lib)


def register_operators() -> None:
    """For those who ask for the namespace first: importing this module has registered them."""
