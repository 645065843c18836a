"""Dynamically quantized layers with an activation in the same operator."""

from __future__ import annotations

from flambeau.ao.nn.quantized import dynamic

__all__ = ["LinearReLU"]


class LinearReLU(dynamic.Linear):
    """A linear layer with weights in eight bits, and relu."""

    post_op = "relu"

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"
