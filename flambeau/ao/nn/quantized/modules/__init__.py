"""Layers on quantized tensors: integers in, integers out, with weights in eight bits.

Products of integers are computed in floating point, which holds them exactly, then rounded to the grid of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor, quantize_per_channel, quantize_per_tensor
from flambeau.ao.quantized_types import per_channel_affine, per_channel_symmetric, qint8, quint8
from flambeau.nn.modules.module import Module

__all__ = ["Conv1d", "Conv2d", "DeQuantize", "FloatFunctional", "Linear", "OnValues", "QFunctional", "Quantize"]


class Quantize(Module):
    """From float32 to a grid."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: Any, zero_point: Any, dtype: Any = quint8, **ignored: Any) -> None:
        super().__init__()
        self.register_buffer("scale", fl.as_tensor(scale, dtype=fl.float32).reshape(1))
        self.register_buffer("zero_point", fl.as_tensor(zero_point, dtype=fl.int64).reshape(1))
        self.dtype = dtype

    def forward(self, X: Tensor) -> QuantizedTensor:
        return quantize_per_tensor(X, self.scale, self.zero_point, self.dtype)

    @classmethod
    def from_float(cls, mod: Any, **ignored: Any) -> Quantize:
        observer = mod.activation_post_process
        return cls(*observer.calculate_qparams(), observer.dtype)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """Back to float32."""

    def forward(self, Xq: Any) -> Tensor:
        return Xq.dequantize()  # type: ignore[no-any-return]

    @classmethod
    def from_float(cls, mod: Any, **ignored: Any) -> DeQuantize:
        return cls()


class _OnGrid(Module):
    """What modules with quantized results share: the grid of the results."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0

    def _set_grid(self, observer: Any) -> None:
        scale, zero_point = observer.calculate_qparams()
        self.scale, self.zero_point = float(scale.item()), int(zero_point.item())

    def _quantized(self, values: Tensor, dtype: Any) -> QuantizedTensor:
        return Grid(dtype, self.scale, self.zero_point).quantize(values)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def get_extra_state(self) -> Any:
        return {"scale": self.scale, "zero_point": self.zero_point}

    def set_extra_state(self, state: Any) -> None:
        self.scale, self.zero_point = state["scale"], state["zero_point"]


class _Layer(_OnGrid):
    """What quantized layers share: weights on a grid of their own."""

    int_weight: Tensor
    weight_scale: Tensor
    weight_zero_point: Tensor
    relu = False

    def _set_weight(self, weight: QuantizedTensor, bias: Tensor | None) -> None:
        grid = weight._grid
        self._per_channel = grid.axis is not None
        self.register_buffer("int_weight", weight.int_repr())
        self.register_buffer("weight_scale", fl.as_tensor(grid.scale, dtype=fl.float64).reshape(-1))
        self.register_buffer("weight_zero_point", fl.as_tensor(grid.zero_point, dtype=fl.int64).reshape(-1))
        self.register_buffer("float_bias", None if bias is None else bias.detach().clone())

    def weight(self) -> QuantizedTensor:
        """The weights as a quantized tensor."""
        if self._per_channel:
            grid = Grid(qint8, self.weight_scale, self.weight_zero_point, 0)
        else:
            grid = Grid(qint8, self.weight_scale.item(), int(self.weight_zero_point.item()))
        return grid.hold(self.int_weight)

    def bias(self) -> Tensor | None:
        return self.float_bias

    def _run(self, x: Any, product: Callable[[Tensor, Tensor], Tensor], channel: int) -> QuantizedTensor:
        """The product of integers, on the grid of the results."""
        if not isinstance(x, QuantizedTensor):
            raise NotImplementedError(
                f"[{self._get_name()}] expected a quantized tensor, got {type(x).__name__}: put a QuantStub before the layer"
            )
        # Sums of products of 8-bit numbers are exact in float32 up to 2^24.
        kind = fl.float32 if self.int_weight[0].numel() * 255 * 128 < 1 << 24 else fl.float64
        zero = self.weight_zero_point.view(-1, *[1] * (self.int_weight.dim() - 1))
        shifted = (x.int_repr().to(fl.int32) - x.q_zero_point()).to(kind)
        whole = product(shifted, (self.int_weight.to(fl.int32) - zero).to(kind))
        shape = [-1 if d == channel % whole.dim() else 1 for d in range(whole.dim())]
        step = (self.weight_scale * x.q_scale()).view(shape).float()
        values = whole.float() * step
        if self.float_bias is not None:
            values = values + self.float_bias.view(shape)
        if self.relu:
            values = values.relu()
        return self._quantized(values, quint8 if x.dtype is quint8 else qint8)

    @staticmethod
    def _observed_weight(mod: Any) -> QuantizedTensor:
        observer = mod.qconfig.weight()
        observer(mod.weight)
        scale, zero_point = observer.calculate_qparams()
        weight = mod.weight.detach().float()
        if observer.qscheme in (per_channel_affine, per_channel_symmetric):
            return quantize_per_channel(weight, scale, zero_point, 0, observer.dtype)
        return quantize_per_tensor(weight, scale, zero_point, observer.dtype)

    @classmethod
    def from_float(cls, mod: Any, **ignored: Any) -> Any:
        """A layer that was observed, or one with a relu behind it, as a quantized one."""
        observer = mod.activation_post_process
        layer = mod[0] if isinstance(mod, fl.nn.Sequential) else mod
        layer.qconfig = mod.qconfig
        quantized = cls._like(layer)
        quantized._set_weight(cls._observed_weight(layer), layer.bias)
        quantized._set_grid(observer)
        return quantized

    @classmethod
    def _like(cls, layer: Any) -> Any:
        raise TypeError(f"[{cls.__name__}] expected a layer that knows its float form, got a base class")


class Linear(_Layer):
    """A linear layer."""

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        zeros = quantize_per_tensor(fl.zeros(out_features, in_features), 1.0, 0, dtype)
        self._set_weight(zeros, fl.zeros(out_features) if bias_ else None)

    @classmethod
    def _like(cls, layer: Any) -> Linear:
        return cls(layer.in_features, layer.out_features, layer.bias is not None)

    def forward(self, x: Any) -> QuantizedTensor:
        return self._run(x, fl.nn.functional.linear, -1)

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {super().extra_repr()}, "
            f"qscheme={self.weight().qscheme()}"
        )


class LinearReLU(Linear):
    """A linear layer and relu."""

    relu = True

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"


class _Conv(_Layer):
    """What convolutions share."""

    ndim = 2

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", **ignored: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode != "zeros" or isinstance(padding, str):
            raise NotImplementedError(
                f"[quantized convolution] expected a number of zeros as padding, got {padding!r} of {padding_mode}"
            )
        spread = lambda v: tuple(v) if isinstance(v, (tuple, list)) else (v,) * self.ndim  # noqa: E731
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding = spread(kernel_size), spread(stride), spread(padding)
        self.dilation, self.padding_mode = spread(dilation), padding_mode
        zeros = quantize_per_tensor(fl.zeros(out_channels, in_channels // groups, *self.kernel_size), 1.0, 0, qint8)
        self._set_weight(zeros, fl.zeros(out_channels) if bias else None)

    @classmethod
    def _like(cls, layer: Any) -> Any:
        return cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation,
            layer.groups, layer.bias is not None, layer.padding_mode,
        )  # fmt: skip

    def forward(self, x: Any) -> QuantizedTensor:
        convolve = getattr(fl.nn.functional, f"conv{self.ndim}d")
        options = (None, self.stride, self.padding, self.dilation, self.groups)
        return self._run(x, lambda whole, weight: convolve(whole, weight, *options), -1 - self.ndim)

    def _get_name(self) -> str:
        return f"QuantizedConv{'ReLU' if self.relu else ''}{self.ndim}d"

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
        text += super().extra_repr()
        text += f", padding={self.padding}" if any(self.padding) else ""
        text += f", dilation={self.dilation}" if any(d != 1 for d in self.dilation) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text if self.float_bias is not None else text + ", bias=False"


class Conv2d(_Conv):
    """A convolution over images."""


class ConvReLU2d(Conv2d):
    """A convolution and relu."""

    relu = True


class Conv1d(_Conv):
    """A convolution over sequences."""

    ndim = 1


class ConvReLU1d(Conv1d):
    """A convolution and relu."""

    relu = True


class OnValues(_OnGrid):
    """A layer that is computed in float32 and rounded to a grid: normalisations and activations."""

    def __init__(self, layer: Module) -> None:
        super().__init__()
        self.layer = layer

    @classmethod
    def from_float(cls, mod: Any, **ignored: Any) -> OnValues:
        layer = cls(mod)
        layer._set_grid(mod.activation_post_process)
        del mod.activation_post_process
        return layer

    def forward(self, x: Any) -> QuantizedTensor:
        return self._quantized(self.layer(x.dequantize()), x.dtype)

    def _get_name(self) -> str:
        return f"Quantized{type(self.layer).__name__}"


# ---------------------------------------------------------------------------------------------- arithmetic


class FloatFunctional(Module):
    """Sums, products and joins as methods, so that their results can be observed."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = fl.nn.Identity()

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            "[FloatFunctional] expected a call of add, mul, cat and the like, got a call of the module itself"
        )

    def add(self, x: Any, y: Any) -> Any:
        return self.activation_post_process(x + y)

    def add_scalar(self, x: Any, y: float) -> Any:
        return x + y

    def mul(self, x: Any, y: Any) -> Any:
        return self.activation_post_process(x * y)

    def mul_scalar(self, x: Any, y: float) -> Any:
        return x * y

    def cat(self, x: Any, dim: int = 0) -> Any:
        return self.activation_post_process(fl.cat(x, dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        return self.activation_post_process((x + y).relu())

    def matmul(self, x: Any, y: Any) -> Any:
        return self.activation_post_process(fl.matmul(x, y))


class QFunctional(_OnGrid):
    """The same on quantized tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = fl.nn.Identity()

    @classmethod
    def from_float(cls, mod: Any, **ignored: Any) -> QFunctional:
        layer = cls()
        layer._set_grid(mod.activation_post_process)
        return layer

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            "[QFunctional] expected a call of add, mul, cat and the like, got a call of the module itself"
        )

    def add(self, x: Any, y: Any) -> QuantizedTensor:
        return self._quantized(x.dequantize() + y.dequantize(), x.dtype)

    def mul(self, x: Any, y: Any) -> QuantizedTensor:
        return self._quantized(x.dequantize() * y.dequantize(), x.dtype)

    def add_relu(self, x: Any, y: Any) -> QuantizedTensor:
        return self._quantized((x.dequantize() + y.dequantize()).relu(), x.dtype)

    def matmul(self, x: Any, y: Any) -> QuantizedTensor:
        return self._quantized(x.dequantize() @ y.dequantize(), x.dtype)

    def cat(self, x: Any, dim: int = 0) -> QuantizedTensor:
        return self._quantized(fl.cat([part.dequantize() for part in x], dim), x[0].dtype)

    def mul_scalar(self, x: Any, y: float) -> QuantizedTensor:
        """The numbers stay, the grid changes."""
        grid = x._grid
        low, high = grid.bounds
        if y > 0:
            return grid._replace(scale=grid.scale * y).hold(x.int_repr())
        if y < 0:
            mirrored = low + high - x.int_repr().to(fl.int32)
            return grid._replace(scale=-grid.scale * y, zero_point=low + high - grid.zero_point).hold(mirrored)
        return grid._replace(scale=1.0, zero_point=0).hold(fl.zeros_like(x.int_repr()))

    def add_scalar(self, x: Any, y: float) -> QuantizedTensor:
        """The numbers stay while the zero point can move by as much; otherwise the grid is widened."""
        grid = x._grid
        low, high = grid.bounds
        moved = grid.zero_point - round(y / grid.scale)
        if low <= moved <= high:
            return grid._replace(zero_point=moved).hold(x.int_repr())
        far = low if moved < low else high
        scale = (abs(moved - far) + high - low) / (high - low) * grid.scale
        return grid._replace(scale=scale, zero_point=far).quantize(x.dequantize() + y)
