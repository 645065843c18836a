"""Reference layers: float layers that know the grid of their weight and round it before they use it.

In a compiled or exported model the pair of operators around the weight is what tells that it is quantized.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fl
from flambeau.ao.nn.intrinsic import _FusedModule
from flambeau.ao.nn.quantized.modules.base import _without_norm, observed_weight
from flambeau.ao.nn.quantized.reference import modules
from flambeau.ao.nn.quantized.reference.modules import *  # noqa: F403
from flambeau.nn.modules.module import Module

__all__ = ["ReferenceModule", "reference_module", *modules.__all__]


class ReferenceModule(Module):
    """A linear layer or convolution with its weight as integers, dequantized each time."""

    weight: Any
    scale: Any
    zero_point: Any

    def __init__(self, layer: Any, post_op: Any) -> None:
        super().__init__()
        from flambeau.ao.quantization.graphs import decomposed  # noqa: F401

        held = observed_weight(layer)
        grid = held._grid
        self.layer_name = type(layer).__name__
        self.per_channel = grid.axis is not None
        self.register_buffer("weight", held.int_repr())
        self.register_buffer("scale", fl.as_tensor(grid.scale, dtype=fl.float32).reshape(-1))
        self.register_buffer("zero_point", fl.as_tensor(grid.zero_point).to(fl.int64).reshape(-1))
        self.bias = None if layer.bias is None else fl.nn.Parameter(layer.bias.detach(), requires_grad=False)
        names = (
            "in_features",
            "out_features",
            "in_channels",
            "out_channels",
            "kernel_size",
            "stride",
            "padding",
            "dilation",
            "groups",
        )
        self.settings = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
        self.post_op = post_op

    def dequantized_weight(self) -> Any:
        ops = fl.ops.quantized_decomposed
        if self.per_channel:
            return ops.dequantize_per_channel.default(self.weight, self.scale, self.zero_point, 0, -128, 127, fl.int8)
        scale, zero_point = float(self.scale), int(self.zero_point)
        return ops.dequantize_per_tensor.default(self.weight, scale, zero_point, -128, 127, fl.int8)

    def forward(self, x: Any) -> Any:
        weight = self.dequantized_weight()
        if "in_features" in self.settings:
            result = fl.nn.functional.linear(x, weight, self.bias)
        else:
            convolve = getattr(fl.nn.functional, f"conv{self.weight.dim() - 2}d")
            of = self.settings
            result = convolve(x, weight, self.bias, of["stride"], of["padding"], of["dilation"], of["groups"])
        return result if self.post_op is None else self.post_op(result)

    def get_quantized_weight(self) -> Any:
        if self.per_channel:
            return fl._make_per_channel_quantized_tensor(self.weight, self.scale, self.zero_point, 0)
        return fl._make_per_tensor_quantized_tensor(self.weight, float(self.scale), int(self.zero_point))

    def _get_name(self) -> str:
        return f"Quantized{self.layer_name}(Reference)"

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.settings.items())


def reference_module(module: Any) -> Any:
    """The reference form of a layer with a configuration; None for others."""
    layer = module[0] if isinstance(module, _FusedModule) else module
    relu = isinstance(module, _FusedModule) and isinstance(module[-1], fl.nn.ReLU)
    relu = relu or type(module).__name__.find("ReLU") > 0
    kinds = (fl.nn.Linear, fl.nn.Conv1d, fl.nn.Conv2d, fl.nn.Conv3d)
    if not isinstance(layer, kinds) or getattr(layer, "padding_mode", "zeros") != "zeros":
        return None
    if isinstance(getattr(layer, "padding", 0), str):
        return None
    config = module.qconfig
    if getattr(config.weight(), "dtype", None) not in (fl.qint8, fl.int8):
        return None
    layer = _without_norm(copy.copy(layer))
    layer.qconfig = config
    return ReferenceModule(layer, fl.relu if relu else None)
