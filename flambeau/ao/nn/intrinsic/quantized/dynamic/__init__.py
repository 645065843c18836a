"""Dynamically quantized layers with an activation in the same operator."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ao.nn.quantized import dynamic

__all__ = ["LinearReLU"]


class LinearReLU(dynamic.Linear):
    """A linear layer with weights in eight bits, and relu."""

    post_op = "relu"

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = fl.qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"
