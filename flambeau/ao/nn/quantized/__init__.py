"""Modules with quantized weights: `modules` on quantized tensors, `dynamic` on plain ones that are rounded as they come."""

from __future__ import annotations

from flambeau._compat import absent
from flambeau.ao.nn.quantized.modules import Conv1d, Conv2d, DeQuantize, FloatFunctional, Linear, QFunctional, Quantize

__all__ = ["Conv1d", "Conv2d", "DeQuantize", "FloatFunctional", "Linear", "QFunctional", "Quantize"]

__getattr__ = absent.names_of(__name__)
