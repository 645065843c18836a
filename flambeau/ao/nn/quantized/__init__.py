"""Modules with quantized weights: `modules` on quantized tensors, `dynamic` on plain ones that are rounded as they come."""

from __future__ import annotations

from typing import Any

from flambeau import _absent
from flambeau.ao.nn.quantized.modules import Conv1d, Conv2d, DeQuantize, FloatFunctional, Linear, QFunctional, Quantize

__all__ = ["Conv1d", "Conv2d", "DeQuantize", "FloatFunctional", "Linear", "QFunctional", "Quantize"]


def __getattr__(name: str) -> Any:
    return _absent.attribute(__name__, name)
