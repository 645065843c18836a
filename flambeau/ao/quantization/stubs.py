"""Marks for where tensors enter and leave the quantized part of a model; they return what they are given."""

from __future__ import annotations

from typing import Any

from flambeau import Tensor
from flambeau.nn.modules.module import Module

__all__ = ["DeQuantStub", "QuantStub", "QuantWrapper"]


class QuantStub(Module):
    """Marks where tensors enter the quantized part; returns what it is given."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig is not None:
            self.qconfig = qconfig

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(QuantStub):
    """Marks where tensors leave the quantized part; returns what it is given."""


class QuantWrapper(Module):
    """A module between two stubs."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        qconfig = getattr(module, "qconfig", None)
        self.quant, self.dequant, self.module = QuantStub(qconfig), DeQuantStub(qconfig), module
        self.train(module.training)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.module(self.quant(x)))
