"""Quantized modules under their usual names."""

from __future__ import annotations

from flambeau._compat import absent

__getattr__ = absent.names_of(__name__, "intrinsic qat quantizable quantized")
