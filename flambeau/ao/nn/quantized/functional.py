"""Functions of quantized tensors with the grid of the result as arguments."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, _ops
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "add", "add_relu", "avg_pool2d", "avg_pool3d", "cat", "celu", "clamp", "conv1d",
    "conv2d", "conv3d", "elu", "hardsigmoid", "hardswish", "hardtanh", "interpolate", "leaky_relu", "linear", "matmul",
    "max_pool1d", "max_pool2d", "mul", "threshold", "upsample", "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

functional = fl.nn.functional


def _on_grid(values: Tensor, scale: Any, zero_point: Any, dtype: Any) -> QuantizedTensor:
    scale = scale.item() if isinstance(scale, Tensor) else scale
    zero_point = zero_point.item() if isinstance(zero_point, Tensor) else zero_point
    return Grid(dtype, float(scale), int(zero_point)).quantize(values)


def _values(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Values of two operands, one of which may be a number, and the dtype of the other."""
    first, second = (x.dequantize() if isinstance(x, QuantizedTensor) else x for x in (a, b))
    return first, second, (a if isinstance(a, QuantizedTensor) else b).dtype


def add(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The sum."""
    x, y, dtype = _values(a, b)
    return _on_grid(x + y, scale, zero_point, dtype)


def add_relu(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The sum, and relu."""
    x, y, dtype = _values(a, b)
    return _on_grid((x + y).relu(), scale, zero_point, dtype)


def mul(a: Any, b: Any, scale: Any, zero_point: Any) -> QuantizedTensor:
    """The product of elements."""
    x, y, dtype = _values(a, b)
    return _on_grid(x * y, scale, zero_point, dtype)


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
        for name, value, wanted in (("an input", input, fl.quint8), ("a weight", weight, fl.qint8)):
            if value.dtype is not wanted:
                raise NotImplementedError(f"[quantized.conv{count}d] expected {name} of {wanted}, got {value.dtype}")
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


def _need_quantized(name: str, input: Any) -> Any:
    if not input.is_quantized:
        raise ValueError(f"[quantized.{name}] expected a quantized tensor, got {input.dtype}")
    return input


# ---------------------------------------------------------------------------------------------- on the grid of the input


def max_pool1d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest values of windows of sequences."""
    if return_indices:
        raise NotImplementedError("[quantized.max_pool1d] expected values alone, got return_indices=True")
    return functional.max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """The largest values of windows of images."""
    if return_indices:
        raise NotImplementedError("[quantized.max_pool2d] expected values alone, got return_indices=True")
    return functional.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode)


def avg_pool2d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Means of windows of images."""
    _need_quantized("avg_pool2d", input)
    return functional.avg_pool2d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Any:  # fmt: skip
    """Means of windows of volumes."""
    _need_quantized("avg_pool3d", input)
    return functional.avg_pool3d(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """Means of as many windows of images as wanted."""
    return functional.adaptive_avg_pool2d(_need_quantized("adaptive_avg_pool2d", input), output_size)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Any:
    """Means of as many windows of volumes as wanted."""
    return functional.adaptive_avg_pool3d(_need_quantized("adaptive_avg_pool3d", input), output_size)


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Any:
    """Images or volumes of another size."""
    return functional.interpolate(_need_quantized("interpolate", input), size, scale_factor, mode, align_corners)


def upsample(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Any:
    """The same under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_bilinear(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Images of another size, with corners that stay where they are."""
    return interpolate(input, size, scale_factor, "bilinear", True)


def upsample_nearest(input: Any, size: Any = None, scale_factor: Any = None) -> Any:
    """Images of another size out of the nearest values."""
    return interpolate(input, size, scale_factor, "nearest")


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """Values between two bounds."""
    result = clamp(_need_quantized("hardtanh", input), min_val, max_val)
    return input.copy_(result) if inplace else result


def clamp(input: Any, min_: float, max_: float) -> QuantizedTensor:
    """Values between two bounds."""
    return _need_quantized("clamp", input)._grid.quantize(input.dequantize().clamp(min_, max_))


def threshold(input: Any, threshold: float, value: float) -> QuantizedTensor:
    """Values above a threshold, and one value in place of the others."""
    grid = _need_quantized("threshold", input)._grid
    return grid.quantize(functional.threshold(input.dequantize(), threshold, value))


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """On the grid between zero and one."""
    return functional.hardsigmoid(_need_quantized("hardsigmoid", input))


# ---------------------------------------------------------------------------------------------- on a given grid


def leaky_relu(
    input: Any, negative_slope: float = 0.01, inplace: bool = False, scale: Any = None, zero_point: Any = None
) -> Any:
    """Leaky relu; without a grid the result is on that of the input."""
    values = functional.leaky_relu(input.dequantize(), negative_slope)
    if scale is not None and zero_point is not None:
        return _on_grid(values, scale, zero_point, input.dtype)
    result = input._grid.quantize(values) if input.is_quantized else values
    return input.copy_(result) if inplace else result


def hardswish(input: Any, scale: float, zero_point: int) -> QuantizedTensor:
    """Hardswish."""
    _need_quantized("hardswish", input)
    return _on_grid(functional.hardswish(input.dequantize()), scale, zero_point, input.dtype)


def elu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> QuantizedTensor:
    """ELU."""
    _need_quantized("elu", input)
    return _on_grid(functional.elu(input.dequantize(), alpha), scale, zero_point, input.dtype)


def celu(input: Any, scale: float, zero_point: int, alpha: float = 1.0) -> QuantizedTensor:
    """CELU."""
    _need_quantized("celu", input)
    return _on_grid(functional.celu(input.dequantize(), alpha), scale, zero_point, input.dtype)
