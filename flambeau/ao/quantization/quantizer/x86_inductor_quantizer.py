"""Quantization for kernels on x86 processors: uint8 activations, int8 weights for each channel."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fl
from flambeau._tensor.quantized_types import per_channel_symmetric, per_tensor_affine
from flambeau.ao.quantization.fake_quantize import FusedMovingAvgObsFakeQuantize
from flambeau.ao.quantization.observer import (
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from flambeau.ao.quantization.quantizer import QuantizationSpec
from flambeau.ao.quantization.quantizer.by_operator import OperatorQuantizer, QuantizationConfig

__all__ = ["X86InductorQuantizer", "get_default_x86_inductor_quantization_config"]


@functools.cache
def get_default_x86_inductor_quantization_config(
    is_qat: bool = False, is_dynamic: bool = False, reduce_range: bool = False
) -> QuantizationConfig:
    """Activations in uint8 for the whole tensor, weights in int8 for each channel; with `reduce_range` in seven bits."""
    most = 127 if reduce_range else 255
    average = {"observer": MovingAverageMinMaxObserver, "eps": 2.0**-12}
    if is_dynamic:
        of_input: Any = (
            FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, averaging_constant=1)
            if is_qat else PlaceholderObserver.with_args(eps=2.0**-12)
        )  # fmt: skip
    elif is_qat:
        of_input = FusedMovingAvgObsFakeQuantize.with_args(**average)
    else:
        of_input = HistogramObserver.with_args(eps=2.0**-12)
    activation = QuantizationSpec(fl.uint8, of_input, 0, most, per_tensor_affine, is_dynamic=is_dynamic)
    of_weight: Any = (
        FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAveragePerChannelMinMaxObserver, eps=2.0**-12)
        if is_qat else PerChannelMinMaxObserver.with_args(eps=2.0**-12)
    )  # fmt: skip
    weight = QuantizationSpec(fl.int8, of_weight, -128, 127, per_channel_symmetric, ch_axis=0)
    return QuantizationConfig(activation, activation, weight, None, is_qat)


class X86InductorQuantizer(OperatorQuantizer):
    """What the compiler's kernels for x86 compute with integers: products and convolutions with what follows them."""

    quantizes_sums = False

    def set_module_name_qconfig(self, module_name: str, quantization_config: Any) -> Any:
        return self.set_module_name(module_name, quantization_config)
