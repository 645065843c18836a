"""Quantization for kernels of mobile processors: int8 activations, symmetric int8 weights."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fl
from flambeau._tensor.quantized_types import per_channel_symmetric, per_tensor_affine, per_tensor_symmetric
from flambeau.ao.quantization.fake_quantize import FusedMovingAvgObsFakeQuantize
from flambeau.ao.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from flambeau.ao.quantization.quantizer import QuantizationSpec
from flambeau.ao.quantization.quantizer.by_operator import OperatorQuantizer, QuantizationConfig

__all__ = ["XNNPACKQuantizer", "get_symmetric_quantization_config"]


@functools.cache
def get_symmetric_quantization_config(
    is_per_channel: bool = False, is_qat: bool = False, is_dynamic: bool = False, act_qmin: int = -128, act_qmax: int = 127,
    weight_qmin: int = -127, weight_qmax: int = 127,
) -> QuantizationConfig:  # fmt: skip
    """Activations in int8 with a zero point, weights without."""
    if is_qat:
        average = MovingAverageMinMaxObserver
        of_input: Any = FusedMovingAvgObsFakeQuantize.with_args(
            observer=average, eps=2.0**-12, **({"averaging_constant": 1} if is_dynamic else {})
        )
        watch = MovingAveragePerChannelMinMaxObserver if is_per_channel else average
        of_weight: Any = FusedMovingAvgObsFakeQuantize.with_args(observer=watch, eps=2.0**-12)
    else:
        of_input = (PlaceholderObserver if is_dynamic else HistogramObserver).with_args(eps=2.0**-12)
        of_weight = (PerChannelMinMaxObserver if is_per_channel else MinMaxObserver).with_args(eps=2.0**-12)
    activation = QuantizationSpec(fl.int8, of_input, act_qmin, act_qmax, per_tensor_affine, is_dynamic=is_dynamic)
    scheme = per_channel_symmetric if is_per_channel else per_tensor_symmetric
    weight = QuantizationSpec(fl.int8, of_weight, weight_qmin, weight_qmax, scheme, 0 if is_per_channel else None)
    if is_dynamic:
        return QuantizationConfig(activation, None, weight, None, is_qat)
    return QuantizationConfig(activation, activation, weight, None, is_qat)


class XNNPACKQuantizer(OperatorQuantizer):
    """Products, convolutions, sums and products of elements, each with the relu behind it."""

    activations = "clips"
    fuses_sums = False

    def quantizes_result(self, node: Any) -> bool:
        return True
