"""Definitions of convolutions in terms of other operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import aten_parts, definition

definition.without(
    "the compiler makes it of others for devices that have a kernel",
    "_convolution_packed",
    "_convolution_prepack",
    "_convolution_prepacked",
)


def windows_of(self: Any, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """View (N, C, *out, *kernel) of a padded (N, C, *space)."""
    out = self
    for d, (k, s, step) in enumerate(zip(kernel, stride, dilation)):
        out = out.unfold(2 + d, step * (k - 1) + 1, s)
        out = fl._ops.slice(out, out.dim() - 1, 0, None, step)
    return out


@definition("convolution", "_convolution")
def convolution(
    input: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    space = weight.dim() - 2
    if input.dim() == space + 1:
        arguments = bias, stride, padding, dilation, transposed, output_padding, groups
        return fl.convolution(input.unsqueeze(0), weight, *arguments).squeeze(0)
    stride, padding, dilation, output_padding = (
        list(x) * (space if len(x) == 1 else 1) for x in (stride, padding, dilation, output_padding)
    )
    kernel = list(weight.shape[2:])
    if transposed:
        # The input spread out by the stride, convolved with the flipped kernel.
        spread_shape = [*input.shape[:2], *((n - 1) * s + 1 for n, s in zip(input.shape[2:], stride))]
        spread = fl.zeros(spread_shape, dtype=input.dtype, device=input.device)
        window = spread
        for d, s in enumerate(stride):
            window = fl._ops.slice(window, 2 + d, 0, None, s)
        window.copy_(input)
        input = spread
        per_group = weight.shape[0] // groups
        weight = fl.flip(weight, list(range(2, 2 + space)))
        weight = weight.reshape([groups, per_group, *weight.shape[1:]]).transpose(1, 2)
        weight = weight.reshape([-1, per_group, *kernel])
        reach = [step * (k - 1) for step, k in zip(dilation, kernel)]
        sides = [(r - p, r - p + o) for r, p, o in zip(reach, padding, output_padding)]
        stride = [1] * space
    else:
        sides = [(p, p) for p in padding]
    pad = [side for pair in reversed(sides) for side in pair]
    if any(pad):
        input = fl.constant_pad_nd(input, pad, 0)
    windows = windows_of(input, kernel, stride, dilation)  # N, C, *out, *kernel
    places = list(windows.shape[2 : 2 + space])
    order = [0, *range(2, 2 + space), 1, *range(2 + space, 2 + 2 * space)]
    rows = windows.permute(order).reshape([-1, groups, windows.shape[1] // groups * math.prod(kernel)])
    filters = weight.reshape([groups, weight.shape[0] // groups, -1])
    out = fl.bmm(rows.transpose(0, 1), filters.transpose(1, 2))  # group, place, filter
    out = out.transpose(0, 1).reshape([input.shape[0], *places, weight.shape[0]])
    out = out.permute([0, space + 1, *range(1, space + 1)])
    return out.clone() if bias is None else out + bias.reshape([-1] + [1] * space)


@definition("_convolution_finished")
def _convolution_finished(
    input: Any, weight: Any, bias: Any, mean: Any, scale: Any, shift: Any, residual: Any, relu: bool,
    padding: Sequence[int],
) -> Any:  # fmt: skip
    out = fl.convolution(input, weight, bias, [1, 1], padding, [1, 1], False, [0, 0], 1)
    mean, scale, shift = (t if t is None else t.reshape([-1, 1, 1]) for t in (mean, scale, shift))
    out = out if mean is None else out - mean
    out = out if scale is None else out * scale
    out = out if shift is None else out + shift
    out = out if residual is None else out + residual
    return fl.relu(out) if relu else out


def _conv(ndim: int, transposed: bool) -> Callable[..., Any]:
    def plain(input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), groups=1):  # type: ignore[no-untyped-def]
        return run(input, weight, bias, stride, padding, dilation, False, (0,), groups)

    def spread(input, weight, bias=None, stride=(1,), padding=(0,), output_padding=(0,), groups=1, dilation=(1,)):  # type: ignore[no-untyped-def]
        return run(input, weight, bias, stride, padding, dilation, True, output_padding, groups)

    def run(input: Any, *rest: Any) -> Any:
        if input.dim() == ndim + 1:
            return fl.convolution(input.unsqueeze(0), *rest).squeeze(0)
        return fl.convolution(input, *rest)

    return spread if transposed else plain


for _n in (1, 2, 3):
    definition(f"conv{_n}d")(_conv(_n, False))
    definition(f"conv_transpose{_n}d")(_conv(_n, True))


def _weight_gradient(
    grad: Any, input: Any, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int
) -> Any:
    """Of a plain convolution: the product of output gradients with the windows they came from."""
    space = len(kernel)
    pad = [side for p in reversed(padding) for side in (p, p)]
    windows = windows_of(fl.constant_pad_nd(input, pad, 0), kernel, stride, dilation)
    for d in range(space):
        windows = windows.narrow(2 + d, 0, grad.shape[2 + d])
    order = [1, 0, *range(2, 2 + space), *range(2 + space, 2 + 2 * space)]
    places = grad.shape[0] * math.prod(grad.shape[2:])
    columns = windows.permute(order).reshape([groups, input.shape[1] // groups, places, math.prod(kernel)])
    columns = columns.permute([0, 2, 1, 3]).reshape([groups, places, input.shape[1] // groups * math.prod(kernel)])
    rows = grad.transpose(0, 1).reshape([groups, grad.shape[1] // groups, places])
    return fl.bmm(rows, columns).reshape([grad.shape[1], input.shape[1] // groups, *kernel])


@definition("_convolution_backward")
def _convolution_backward(
    grad_output: Any, input: Any, weight: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Sequence[bool],
) -> Any:  # fmt: skip
    space = weight.dim() - 2
    stride, padding, dilation = (list(x) * (space if len(x) == 1 else 1) for x in (stride, padding, dilation))
    none = grad_output.new_empty(0)
    kernel = list(weight.shape[2:])
    by_input, by_weight, by_bias = none, none, none
    if output_mask[0]:
        rest = [
            n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
            for n, m, s, p, d, k in zip(input.shape[2:], grad_output.shape[2:], stride, padding, dilation, kernel)
        ]
        other = [0] * space if transposed else rest
        by_input = fl.convolution(grad_output, weight, None, stride, padding, dilation, not transposed, other, groups)
    if output_mask[1]:
        pair = (input, grad_output) if transposed else (grad_output, input)
        by_weight = _weight_gradient(*pair, kernel, stride, padding, dilation, groups)
    if output_mask[2]:
        by_bias = fl.sum(grad_output, [0, *range(2, grad_output.dim())])
    return by_input, by_weight, by_bias


@definition("_im2col")
def _im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if self.dim() == 3:
        return fl._ops._im2col(self.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    pad = [side for p in reversed(padding) for side in (p, p)]
    windows = windows_of(fl.constant_pad_nd(self, pad, 0), kernel_size, stride, dilation)
    shape = [self.shape[0], self.shape[1] * math.prod(kernel_size), math.prod(windows.shape[2:4])]
    return windows.permute([0, 1, 4, 5, 2, 3]).reshape(shape)


@definition("_col2im")
def _col2im(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    if self.dim() == 2:
        return fl._ops._col2im(self.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    places = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(output_size, padding, dilation, kernel_size, stride)
    ]
    channels = self.shape[1] // math.prod(kernel_size)
    columns = self.reshape([self.shape[0], channels, *kernel_size, *places])
    wide = [n + 2 * p for n, p in zip(output_size, padding)]
    out = fl.zeros([self.shape[0], channels, *wide], dtype=self.dtype, device=self.device)
    for i in range(kernel_size[0]):
        for j in range(kernel_size[1]):
            rows = slice(i * dilation[0], i * dilation[0] + (places[0] - 1) * stride[0] + 1, stride[0])
            cols = slice(j * dilation[1], j * dilation[1] + (places[1] - 1) * stride[1] + 1, stride[1])
            out[:, :, rows, cols] += columns[:, :, i, j]
    inside = out.narrow(2, padding[0], output_size[0]).narrow(3, padding[1], output_size[1])
    return inside.clone(memory_format=fl.contiguous_format)


# ---------------------------------------------------------------- as ATen has them


def _convolution_as_aten(n: int, transposed: bool) -> Callable[..., Any]:
    def full(value: Any, default: int) -> list[int]:
        value = default if value is None else value
        return list(value) * (n if len(value) == 1 else 1) if isinstance(value, Sequence) else [value] * n

    def convolution(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, out: Any) -> Any:  # fmt: skip
        if input.dim() not in (n + 1, n + 2) or weight.dim() != n + 2:
            return NotImplemented
        options = (full(stride, 1), full(padding, 0), full(dilation, 1), transposed, full(out, 0), groups)
        if input.dim() == n + 1:
            return fl.convolution(input.unsqueeze(0), weight, bias, *options).squeeze(0)
        return fl.convolution(input, weight, bias, *options)

    def forward(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:  # fmt: skip
        return convolution(input, weight, bias, stride, padding, dilation, groups, 0)

    def backward(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Any:  # fmt: skip
        return convolution(input, weight, bias, stride, padding, dilation, groups, output_padding)

    return backward if transposed else forward


for _n in (1, 2, 3):
    aten_parts(f"conv{_n}d")(_convolution_as_aten(_n, False))
    aten_parts(f"conv_transpose{_n}d")(_convolution_as_aten(_n, True))
