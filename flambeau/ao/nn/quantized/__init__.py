"""Modules with quantized weights: `modules` on quantized tensors, `dynamic` on plain ones that are rounded as they come."""

from __future__ import annotations

from flambeau._compat import absent
from flambeau.ao.nn.quantized.modules import *  # noqa: F403
from flambeau.ao.nn.quantized.modules import __all__  # noqa: F401

__getattr__ = absent.names_of(__name__, "dynamic functional reference")
