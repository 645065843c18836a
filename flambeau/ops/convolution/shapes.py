"""Shape rules of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.geometry import Geometry, Int, Ints, check_bias, equal_sizes, require
from flambeau.ops.rules import shape


def for_each_dim(value: Any, n: int) -> list[Int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * n if len(values) == 1 else values


def window_count(size: Int, kernel: Int, stride: Int, padding: Int, dilation: Int) -> Int:
    span = dilation * (kernel - 1) + 1
    require(
        size + 2 * padding >= span, f"[window] expected at least {span} elements, got {size} with padding {padding}"
    )
    return (size + 2 * padding - span) // stride + 1


def _convolved(input: Geometry, weight: Geometry, stride: Any, padding: Any, dilation: Any) -> Ints:
    n = len(weight.sizes) - 2
    stride, padding, dilation = for_each_dim(stride, n), for_each_dim(padding, n), for_each_dim(dilation, n)
    lead = input.sizes[: len(input.sizes) - n - 1]
    spatial = [
        window_count(input.sizes[i - n], weight.sizes[i - n], stride[i], padding[i], dilation[i]) for i in range(n)
    ]
    return (*lead, weight.sizes[0], *spatial)


def _transposed(
    input: Geometry, weight: Geometry, stride: Any, padding: Any, output_padding: Any, groups: Int, dilation: Any
) -> Ints:
    n = len(weight.sizes) - 2
    stride, padding = for_each_dim(stride, n), for_each_dim(padding, n)
    output_padding, dilation = for_each_dim(output_padding, n), for_each_dim(dilation, n)
    lead = input.sizes[: len(input.sizes) - n - 1]
    spatial = [
        (input.sizes[i - n] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.sizes[i - n] - 1) + output_padding[i] + 1
        for i in range(n)
    ]  # fmt: skip
    return (*lead, weight.sizes[1] * groups, *spatial)


def _check_channels(input: Geometry, weight: Geometry, groups: Int, transposed: bool) -> None:
    channels = input.sizes[-(len(weight.sizes) - 1)]
    equal_sizes(channels, weight.sizes[0] if transposed else weight.sizes[1] * groups, "channels")


@shape("conv1d", "conv2d", "conv3d")
def conv(
    input: Geometry, weight: Geometry, bias: Geometry | None, stride: Any, padding: Any, dilation: Any, groups: Int
) -> Ints:
    _check_channels(input, weight, groups, False)
    check_bias(bias, weight.sizes[0])
    return _convolved(input, weight, stride, padding, dilation)


@shape("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    input: Geometry,
    weight: Geometry,
    bias: Geometry | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Int,
    dilation: Any,
) -> Ints:
    _check_channels(input, weight, groups, True)
    check_bias(bias, weight.sizes[1] * groups)
    return _transposed(input, weight, stride, padding, output_padding, groups, dilation)


@shape("convolution", "_convolution")
def convolution(
    input: Geometry,
    weight: Geometry,
    bias: Geometry | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: Int,
) -> Ints:
    _check_channels(input, weight, groups, transposed)
    check_bias(bias, weight.sizes[1] * groups if transposed else weight.sizes[0])
    if transposed:
        return _transposed(input, weight, stride, padding, output_padding, groups, dilation)
    return _convolved(input, weight, stride, padding, dilation)


@shape("_convolution_backward")
def convolution_backward(
    grad_output: Geometry, input: Geometry, weight: Geometry, transposed: bool, output_mask: Sequence[bool]
) -> list[Ints]:
    n = len(weight.sizes) - 2
    shapes = [input.sizes, weight.sizes, (grad_output.sizes[len(grad_output.sizes) - n - 1],)]
    return [s if wanted else (0,) for s, wanted in zip(shapes, output_mask)]


@shape("_im2col")
def im2col(self: Geometry, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Ints:
    kernel, dilation = for_each_dim(kernel_size, 2), for_each_dim(dilation, 2)
    padding, stride = for_each_dim(padding, 2), for_each_dim(stride, 2)
    lead = self.sizes[:-3]
    counts = [window_count(self.sizes[i - 2], kernel[i], stride[i], padding[i], dilation[i]) for i in range(2)]
    return (*lead, self.sizes[-3] * kernel[0] * kernel[1], counts[0] * counts[1])


@shape("_col2im")
def col2im(self: Geometry, output_size: Any, kernel_size: Any) -> Ints:
    kernel, size = for_each_dim(kernel_size, 2), for_each_dim(output_size, 2)
    return (*self.sizes[:-2], self.sizes[-2] // (kernel[0] * kernel[1]), *size)
