"""Arithmetic of tensors as modules, so that results can be observed and quantized."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.nn.quantized.modules.base import OnGrid
from flambeau.ao.quantized_tensor import QuantizedTensor
from flambeau.nn.modules.module import Module

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]


class FloatFunctional(Module):
    """Sums, products and joins as methods, so that their results can be observed."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Module = fl.nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError(
            "[FloatFunctional] expected a call of add, mul, cat and the like, got a call of the module itself"
        )

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(fl.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return fl.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(fl.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return fl.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return self.activation_post_process(fl.cat(x, dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(fl.add(x, y).relu())

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(fl.matmul(x, y))


class FXFloatFunctional(FloatFunctional):
    """The same in graphs, where observers are nodes of their own."""

    def __init__(self) -> None:
        Module.__init__(self)
        self.activation_post_process = fl.nn.Identity()


class QFunctional(OnGrid):
    """The same on quantized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process: Any = fl.nn.Identity()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        layer = cls()
        layer._set_grid(mod.activation_post_process)
        return layer

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            "[QFunctional] expected a call of add, mul, cat and the like, got a call of the module itself"
        )

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        return forms.QFunctional(scale=self.scale, zero_point=self.zero_point)

    def _get_name(self) -> str:
        return "QFunctional"

    def add(self, x: Any, y: Any) -> QuantizedTensor:
        return self.activation_post_process(self._quantized(x.dequantize() + y.dequantize(), x.dtype))

    def mul(self, x: Any, y: Any) -> QuantizedTensor:
        return self.activation_post_process(self._quantized(x.dequantize() * y.dequantize(), x.dtype))

    def add_relu(self, x: Any, y: Any) -> QuantizedTensor:
        return self.activation_post_process(self._quantized((x.dequantize() + y.dequantize()).relu(), x.dtype))

    def matmul(self, x: Any, y: Any) -> QuantizedTensor:
        return self.activation_post_process(self._quantized(x.dequantize() @ y.dequantize(), x.dtype))

    def cat(self, x: Any, dim: int = 0) -> QuantizedTensor:
        return self.activation_post_process(self._quantized(fl.cat([part.dequantize() for part in x], dim), x[0].dtype))

    def mul_scalar(self, x: Any, y: float) -> QuantizedTensor:
        return scalar_multiplied(x, y)

    def add_scalar(self, x: Any, y: float) -> QuantizedTensor:
        return scalar_added(x, y)


def scalar_multiplied(x: Any, y: float) -> QuantizedTensor:
    """A quantized tensor times a number: the integers stay, the grid changes."""
    grid = x._grid
    low, high = grid.bounds
    if y > 0:
        return grid._replace(scale=grid.scale * y).hold(x.int_repr())
    if y < 0:
        mirrored = low + high - x.int_repr().to(fl.int32)
        return grid._replace(scale=-grid.scale * y, zero_point=low + high - grid.zero_point).hold(mirrored)
    return grid._replace(scale=1.0, zero_point=0).hold(fl.zeros_like(x.int_repr()))


def scalar_added(x: Any, y: float) -> QuantizedTensor:
    """The integers stay while the zero point can move by as much; otherwise the grid is widened."""
    grid = x._grid
    low, high = grid.bounds
    moved = grid.zero_point - round(y / grid.scale)
    if low <= moved <= high:
        return grid._replace(zero_point=moved).hold(x.int_repr())
    far = low if moved < low else high
    scale = (abs(moved - far) + high - low) / (high - low) * grid.scale
    return grid._replace(scale=scale, zero_point=far).quantize(x.dequantize() + y)
