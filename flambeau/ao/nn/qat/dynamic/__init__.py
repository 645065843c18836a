"""Layers for training that knows of dynamic quantization: only weights are rounded."""

from __future__ import annotations

from typing import Any

from flambeau.ao.nn import qat

__all__ = ["Linear"]


class Linear(qat.Linear):
    """A linear layer whose inputs are rounded as they come once it is quantized."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, **options: Any
    ) -> None:
        super().__init__(in_features, out_features, bias, qconfig, **options)
        if not getattr(qconfig.activation(), "is_dynamic", False):
            raise ValueError("[qat.dynamic.Linear] expected a qconfig with is_dynamic for activations, got another one")
