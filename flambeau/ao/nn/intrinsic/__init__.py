"""Layers that belong together, as one module: what `fuse_modules` makes and `convert` turns into one quantized layer.

`qat` has the same with fake quantization, `quantized` the quantized layers.
"""

from __future__ import annotations

from typing import Any

from flambeau import nn
from flambeau._compat import absent

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d",
    "ConvBnReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearLeakyReLU", "LinearReLU", "LinearTanh",
]  # fmt: skip


class _FusedModule(nn.Sequential):
    """Layers that run one after the other."""


def _fused(name: str, parts: str) -> Any:
    return type(name, (_FusedModule,), {"__doc__": f"{parts}, as one module.", "__module__": __name__})


ConvReLU1d = _fused("ConvReLU1d", "A convolution over sequences and relu")
ConvReLU2d = _fused("ConvReLU2d", "A convolution over images and relu")
ConvReLU3d = _fused("ConvReLU3d", "A convolution over volumes and relu")
ConvBn1d = _fused("ConvBn1d", "A convolution over sequences and batch norm")
ConvBn2d = _fused("ConvBn2d", "A convolution over images and batch norm")
ConvBn3d = _fused("ConvBn3d", "A convolution over volumes and batch norm")
ConvBnReLU1d = _fused("ConvBnReLU1d", "A convolution over sequences, batch norm and relu")
ConvBnReLU2d = _fused("ConvBnReLU2d", "A convolution over images, batch norm and relu")
ConvBnReLU3d = _fused("ConvBnReLU3d", "A convolution over volumes, batch norm and relu")
BNReLU2d = _fused("BNReLU2d", "Batch norm of images and relu")
BNReLU3d = _fused("BNReLU3d", "Batch norm of volumes and relu")
LinearReLU = _fused("LinearReLU", "A linear layer and relu")
LinearBn1d = _fused("LinearBn1d", "A linear layer and batch norm")
LinearLeakyReLU = _fused("LinearLeakyReLU", "A linear layer and leaky relu")
LinearTanh = _fused("LinearTanh", "A linear layer and tanh")


class ConvAdd2d(_FusedModule):
    """A convolution and a sum with another tensor."""

    def __init__(self, conv: Any, add: Any) -> None:
        super().__init__(conv)
        self.add = add

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.add(self[0](x1), x2)


class ConvAddReLU2d(_FusedModule):
    """A convolution, a sum with another tensor, and relu."""

    def __init__(self, conv: Any, add: Any, relu: Any) -> None:
        super().__init__(conv)
        self.add, self.relu = add, relu

    def forward(self, x1: Any, x2: Any) -> Any:  # type: ignore[override]
        return self.relu(self.add(self[0](x1), x2))


__getattr__ = absent.names_of(__name__, "modules qat quantized")
