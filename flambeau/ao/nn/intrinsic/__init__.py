"""Layers that belong together, as one module: what `fuse_modules` makes and `convert` turns into one quantized layer."""

from __future__ import annotations

from flambeau import nn
from flambeau._compat import absent

__all__ = ["BNReLU2d", "ConvReLU1d", "ConvReLU2d", "LinearReLU"]


class _Fused(nn.Sequential):
    """Layers that run one after the other."""


class ConvReLU1d(_Fused):
    pass


class ConvReLU2d(_Fused):
    pass


class LinearReLU(_Fused):
    pass


class BNReLU2d(_Fused):
    pass


__getattr__ = absent.names_of(__name__)
