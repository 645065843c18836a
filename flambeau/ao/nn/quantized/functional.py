"""Functions of quantized tensors with the grid of the result as arguments."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, _ops
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor

__all__ = [
    "add",
    "add_relu",
    "avg_pool2d",
    "cat",
    "conv1d",
    "conv2d",
    "conv3d",
    "linear",
    "matmul",
    "max_pool2d",
    "mul",
]


def _on_grid(values: Tensor, scale: Any, zero_point: Any, dtype: Any) -> QuantizedTensor:
    scale = scale.item() if isinstance(scale, Tensor) else scale
    zero_point = zero_point.item() if isinstance(zero_point, Tensor) else zero_point
    return Grid(dtype, float(scale), int(zero_point)).quantize(values)


def add(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The sum."""
    return _on_grid(a.dequantize() + b.dequantize(), scale, zero_point, a.dtype)


def add_relu(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The sum, and relu."""
    return _on_grid((a.dequantize() + b.dequantize()).relu(), scale, zero_point, a.dtype)


def mul(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The product of elements."""
    return _on_grid(a.dequantize() * b.dequantize(), scale, zero_point, a.dtype)


def matmul(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The product of matrices."""
    return _on_grid(a.dequantize() @ b.dequantize(), scale, zero_point, a.dtype)


def cat(tensors: Any, dim: int, scale: Any, zero_point: Any) -> QuantizedTensor:
    """Tensors side by side."""
    return _on_grid(fl.cat([t.dequantize() for t in tensors], dim), scale, zero_point, tensors[0].dtype)


def _operands(weight: Any) -> tuple[Tensor, Tensor, Tensor]:
    grid = weight._grid
    scales = fl.as_tensor(grid.scale, dtype=fl.float32).reshape(-1)
    return weight.int_repr(), scales, fl.as_tensor(grid.zero_point).to(fl.int32).reshape(-1)


def linear(input: Any, weight: Any, bias: Any = None, scale: Any = None, zero_point: Any = None) -> QuantizedTensor:
    """A linear layer; without a grid the result is on that of the input."""
    scale = input.q_scale() if scale is None else float(scale)
    zero_point = input.q_zero_point() if zero_point is None else int(zero_point)
    integers = input.int_repr()
    result = _ops._quantized_linear(
        integers, input.q_scale(), input.q_zero_point(), *_operands(weight), bias, scale, zero_point, integers.dtype
    )
    return Grid(input.dtype, scale, zero_point).hold(result)


def _convolution(count: int) -> Any:
    def convolve(
        input: Any, weight: Any, bias: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        padding_mode: str = "zeros", scale: float = 1.0, zero_point: int = 0, dtype: Any = fl.quint8,
    ) -> QuantizedTensor:  # fmt: skip
        if padding_mode != "zeros":
            raise NotImplementedError(f"[conv{count}d] expected padding of zeros, got {padding_mode}")
        spread = [list(v) if isinstance(v, (tuple, list)) else [v] * count for v in (stride, padding, dilation)]
        integers = input.int_repr()
        result = _ops._quantized_conv(
            integers, input.q_scale(), input.q_zero_point(), *_operands(weight), bias, *spread, groups, float(scale),
            int(zero_point), integers.dtype,
        )  # fmt: skip
        return Grid(input.dtype, float(scale), int(zero_point)).hold(result)

    convolve.__name__ = convolve.__qualname__ = f"conv{count}d"
    convolve.__doc__ = "A convolution of quantized tensors."
    return convolve


conv1d, conv2d, conv3d = _convolution(1), _convolution(2), _convolution(3)
max_pool2d, avg_pool2d = fl.nn.functional.max_pool2d, fl.nn.functional.avg_pool2d
