"""Quantized layers with an activation in the same operator."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._compat import absent
from flambeau.ao.nn.quantized.modules import conv, linear, normalization
from flambeau.ao.quantized_tensor import QuantizedTensor

__all__ = [
    "BNReLU2d", "BNReLU3d", "ConvAdd2d", "ConvAddReLU2d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearLeakyReLU", "LinearReLU",
    "LinearTanh",
]  # fmt: skip


class LinearReLU(linear.Linear):
    """A linear layer and relu."""

    post_op = "relu"

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = fl.qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"


class _LinearThen(linear.Linear):
    """A linear layer and an activation that is computed from the values of the product."""

    def after(self, values: Any) -> Any:
        raise TypeError(f"[{type(self).__name__}] expected a layer with an activation, got a base class")

    def forward(self, x: Any) -> QuantizedTensor:
        x = self._input(x)
        values = fl._ops._int8_linear(x.int_repr(), x.q_scale(), x.q_zero_point(), *self.operands(), 1.0, 0, None)
        return self._quantized(self.after(values), x.dtype)


class LinearLeakyReLU(_LinearThen):
    """A linear layer and leaky relu."""

    def _script_form(self) -> Any:
        from flambeau.ao.quantized_operators.layers import PackedLinear
        from flambeau.jit._library import quantized as forms

        return forms.PackedLeakyReLU(
            _packed_params=PackedLinear(self), scale=self.scale, zero_point=self.zero_point,
            negative_slope=float(self.negative_slope),
        )  # fmt: skip

    def __init__(
        self,
        in_features: int,
        out_features: int,
        negative_slope: float = 0.01,
        bias: bool = True,
        dtype: Any = fl.qint8,
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype)
        self.negative_slope = negative_slope

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        layer = super().from_float(mod, use_precomputed_fake_quant)
        layer.negative_slope = mod[1].negative_slope
        return layer

    @classmethod
    def _like(cls, layer: Any) -> Any:
        return cls(layer.in_features, layer.out_features, bias=layer.bias is not None)

    def after(self, values: Any) -> Any:
        return fl.nn.functional.leaky_relu(values, self.negative_slope)

    def _get_name(self) -> str:
        return "QuantizedLinearLeakyReLU"


class LinearTanh(_LinearThen):
    """A linear layer and tanh."""

    post_op = "tanh"

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = fl.qint8) -> None:
        super().__init__(in_features, out_features, bias, dtype)

    def after(self, values: Any) -> Any:
        return values.tanh()

    def _get_name(self) -> str:
        return "QuantizedLinearTanh"


class ConvReLU1d(conv.Conv1d):
    """A convolution over sequences and relu."""

    post_op = "relu"


class ConvReLU2d(conv.Conv2d):
    """A convolution over images and relu."""

    post_op = "relu"


class ConvReLU3d(conv.Conv3d):
    """A convolution over volumes and relu."""

    post_op = "relu"


class ConvAdd2d(conv.Conv2d):
    """A convolution and the sum with another quantized tensor."""

    post_op = "add"

    def forward(self, input: Any, extra_input: Any) -> QuantizedTensor:  # type: ignore[override]
        other = extra_input.int_repr(), extra_input.q_scale(), extra_input.q_zero_point()
        return self.on_grid(self._input(input), self.scale, self.zero_point, self.post_op, *other)

    def _get_name(self) -> str:
        return "QuantizedConvAdd2d"


class ConvAddReLU2d(ConvAdd2d):
    """A convolution, the sum with another quantized tensor, and relu."""

    post_op = "add_relu"

    def _get_name(self) -> str:
        return "QuantizedConvAddReLU2d"


class BNReLU2d(normalization.BatchNorm2d):  # type: ignore[misc, valid-type]
    """Batch norm of images and relu."""

    relu = True


class BNReLU3d(normalization.BatchNorm3d):  # type: ignore[misc, valid-type]
    """Batch norm of volumes and relu."""

    relu = True


__getattr__ = absent.names_of(__name__)
