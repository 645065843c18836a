"""Convolutions on quantized tensors."""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fl
from flambeau import Tensor, _ops
from flambeau._tensor.quantized_types import qint8
from flambeau.ao.nn.quantized.modules.base import WeightedQuantizedModule
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor, quantize_per_tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_PAD_MODES = ("zeros", "reflect")


class _ConvNd(WeightedQuantizedModule):
    """What convolutions share."""

    ndim = 2
    transposed = False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_mode not in _PAD_MODES or isinstance(padding, str):
            raise NotImplementedError(
                f"[quantized convolution] expected a number as padding, of zeros or reflected, got {padding!r} of {padding_mode}"
            )
        spread = lambda v: tuple(v) if isinstance(v, (tuple, list)) else (v,) * self.ndim  # noqa: E731
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.padding = spread(kernel_size), spread(stride), spread(padding)  # type: ignore[no-untyped-call]
        self.dilation, self.padding_mode = spread(dilation), padding_mode  # type: ignore[no-untyped-call]
        self.output_padding: tuple[int, ...] = (0,) * self.ndim
        rows, columns = (
            (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        )
        zeros = quantize_per_tensor(fl.zeros(rows, columns, *self.kernel_size), 1.0, 0, qint8)
        self.set_weight_bias(zeros, fl.zeros(out_channels) if bias else None)

    @classmethod
    def _like(cls, layer: Any) -> Any:
        return cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation,
            layer.groups, layer.bias is not None, layer.padding_mode,
        )  # fmt: skip

    @property
    def _packed_params(self) -> Any:
        """What functions of `ops.quantized` take."""
        from flambeau.ao.quantized_operators.layers import PackedConvolution

        return PackedConvolution(self)

    def packed(self, weight: Tensor) -> Tensor:
        return _ops._int8_convolution_pack(weight, self.groups)

    def _input(self, x: Any) -> QuantizedTensor:
        if x.dim() != self.ndim + 2:
            raise ValueError(
                f"[{self._get_name()}] expected an input (n, c, {', '.join('dhw'[3 - self.ndim :])}), got {tuple(x.shape)}"
            )
        return super()._input(x)

    def forward(self, input: Any) -> QuantizedTensor:
        return self.on_grid(self._input(input), self.scale, self.zero_point, self.post_op)

    def on_grid(self, x: QuantizedTensor, scale: float, zero_point: int, post_op: str, *other: Any) -> QuantizedTensor:
        """The result on another grid than the layer's, with an activation or sum behind the convolution."""
        integers, padding = self._padded(x.int_repr())
        result = _ops._int8_convolution(
            integers, x.q_scale(), x.q_zero_point(), *self.operands(), self.stride, padding, self.dilation,
            self.groups, scale, zero_point, integers.dtype, post_op, *other,
        )  # fmt: skip
        return Grid(x.dtype, scale, zero_point).hold(result)

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        name = f"conv{'_transpose' if self.transposed else ''}{self.ndim}d"
        function = getattr(forms.quantized, name if self.post_op == "none" else f"{name}_{self.post_op}")
        grid = {"scale": self.scale, "zero_point": self.zero_point}
        kind = forms.PackedSum if "add" in self.post_op else forms.Packed
        if self.padding_mode == "zeros":
            return kind(_function=function, _packed_params=self._packed_params, **grid)
        unpadded = copy.copy(self)
        unpadded.padding, unpadded.padding_mode = (0,) * self.ndim, "zeros"
        return kind(_function=function, _packed_params=unpadded._packed_params, sides=self._sides(), **grid)

    def _sides(self) -> list[int]:
        return [n for size in reversed(self.padding) for n in (size, size)]

    def _padded(self, integers: Tensor) -> tuple[Tensor, Any]:
        """The input with what lies around it reflected, where the operator does not pad it itself."""
        if self.padding_mode == "zeros":
            return integers, self.padding
        padded = fl.nn.functional.pad(integers.float(), self._sides(), mode=self.padding_mode).to(integers.dtype)
        return padded, (0,) * self.ndim

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight_bias()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *rest: Any
    ) -> None:
        missing += [prefix + name for name in ("weight", "bias") if strict and prefix + name not in state_dict]
        if prefix + "weight" in state_dict:
            self.set_weight_bias(state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias", None))
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)

    def _get_name(self) -> str:
        relu = "ReLU" if self.post_op == "relu" else ""
        return f"QuantizedConv{'Transpose' if self.transposed else ''}{relu}{self.ndim}d"

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
        text += super().extra_repr()
        text += f", padding={self.padding}" if any(self.padding) else ""
        text += f", dilation={self.dilation}" if any(d != 1 for d in self.dilation) else ""
        text += f", output_padding={self.output_padding}" if any(self.output_padding) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text if self._bias is not None else text + ", bias=False"

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: float, output_zero_point: int) -> Any:
        """From a reference module: a float layer that knows the grid of its weight."""
        layer = cls._like(ref_qconv)
        layer.set_weight_bias(ref_qconv.get_quantized_weight(), ref_qconv.bias)
        layer.scale, layer.zero_point = float(output_scale), int(output_zero_point)
        return layer


class Conv1d(_ConvNd):
    """A convolution over sequences."""

    ndim = 1
    _FLOAT_MODULE = fl.nn.Conv1d


class Conv2d(_ConvNd):
    """A convolution over images."""

    _FLOAT_MODULE = fl.nn.Conv2d


class Conv3d(_ConvNd):
    """A convolution over volumes."""

    ndim = 3
    _FLOAT_MODULE = fl.nn.Conv3d


class _ConvTransposeNd(_ConvNd):
    """What transposed convolutions share. Sums of products are exact, as in the operators of the others."""

    transposed = True

    def packed(self, weight: Tensor) -> Tensor:
        return weight

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode)
        spread = output_padding if isinstance(output_padding, (tuple, list)) else (output_padding,) * self.ndim
        self.output_padding = tuple(spread)

    @classmethod
    def _like(cls, layer: Any) -> Any:
        return cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.output_padding,
            layer.groups, layer.bias is not None, layer.dilation, layer.padding_mode,
        )  # fmt: skip

    def on_grid(self, x: QuantizedTensor, scale: float, zero_point: int, post_op: str, *other: Any) -> QuantizedTensor:
        grid = self.weight()._grid
        if grid.axis is not None:
            raise NotImplementedError(
                f"[{self._get_name()}] expected a weight with one scale, got one for each channel"
            )
        convolve = getattr(fl.nn.functional, f"conv_transpose{self.ndim}d")
        shifted = (x.int_repr().to(fl.int32) - x.q_zero_point()).double()
        weight = (self.operands()[0].to(fl.int32) - grid.zero_point).double()
        total = convolve(
            shifted, weight, None, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )  # fmt: skip
        values = total.float() * (grid.scale * x.q_scale())
        if self._bias is not None:
            values = values + self._bias.view(-1, *[1] * self.ndim)
        return Grid(x.dtype, scale, zero_point).quantize(values.relu() if post_op == "relu" else values)


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution over sequences."""

    ndim = 1
    _FLOAT_MODULE = fl.nn.ConvTranspose1d


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution over images."""

    _FLOAT_MODULE = fl.nn.ConvTranspose2d


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution over volumes."""

    ndim = 3
    _FLOAT_MODULE = fl.nn.ConvTranspose3d
