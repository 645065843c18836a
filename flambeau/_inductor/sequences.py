"""Convolutions as the compiler records them for GPUs: depthwise ones of sequences by a few elements, gradients of biases.

State-space models mix neighbours along a sequence by such a filter. It is a sum of a few shifted products: loops, which fuse
with the activation that follows, and read and write the sequence as it lies, feature beside feature, where a convolution
wants each channel to be contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl

__all__ = ["DEFINITIONS"]

_MOST_ELEMENTS = 8  # of a filter
_DTYPES = (fl.float32, fl.bfloat16, fl.float16)

DEFINITIONS: dict[str, Callable[..., Any]] = {}  # by the full name of the operator


def _defines(name: str) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        function.chooses_strides = True
        return DEFINITIONS.setdefault(name, function)

    return enter


def _fits(input: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> bool:
    return (
        input.dim() == 3
        and input.dtype in _DTYPES
        and weight.dtype == input.dtype
        and groups == input.shape[1] == weight.shape[0]
        and weight.shape[1] == 1
        and 1 < weight.shape[2] <= _MOST_ELEMENTS
        and not isinstance(padding, str)
        and (list(stride), list(dilation)) == ([1], [1])
        and 0 <= padding[0] < weight.shape[2]
        and input.shape[2] + 2 * padding[0] >= weight.shape[2]
        and 0 not in input.shape
    )


def _padded(sequence: Any, amount: int) -> Any:
    """A sequence (batch, length, channels) with zeros before and after."""
    return fl.constant_pad_nd(sequence, [0, 0, amount, amount]) if amount else sequence


def _filtered(padded: Any, weight: Any, length: int, backwards: bool) -> Any:
    """The sum of shifted products, in float."""
    count = weight.shape[2]
    total = None
    for k in range(count):
        start = count - 1 - k if backwards else k
        part = padded[:, start : start + length].float() * weight[:, 0, k].float()
        total = part if total is None else total + part
    return total


@_defines("conv1d")
def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
) -> Any:
    if not _fits(input, weight, stride, padding, dilation, groups):
        return NotImplemented
    length = input.shape[2] + 2 * padding[0] - weight.shape[2] + 1
    filtered = _filtered(_padded(input.transpose(1, 2), padding[0]), weight, length, False)
    filtered = filtered if bias is None else filtered + bias.float()
    return filtered.to(input.dtype).transpose(1, 2)


def _with_bias_apart(grad: Any, *rest: Any) -> Any:
    """Of any other convolution, the gradient of the bias is a loop, in the kernel that makes the gradient it sums up."""
    *settings, mask = rest
    if not mask[2] or grad.dtype not in _DTYPES or 0 in grad.shape:
        return NotImplemented
    by_bias = grad.sum([0, *range(2, grad.dim())])
    others = fl.ops.aten._convolution_backward.default(grad, *settings, [mask[0], mask[1], False])
    return others[0], others[1], by_bias


@_defines("_convolution_backward")
def convolution_backward(
    grad: Any,
    input: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    mask: Sequence[bool],
) -> Any:
    if transposed or not _fits(input, weight, stride, padding, dilation, groups):
        return _with_bias_apart(
            grad, input, weight, stride, padding, dilation, transposed, output_padding, groups, mask
        )
    count, length = weight.shape[2], input.shape[2]
    gradient = grad.transpose(1, 2)
    none = input.new_empty(0)
    by_input = by_weight = by_bias = none
    if mask[0]:
        around = _padded(gradient, count - 1 - padding[0])
        by_input = _filtered(around, weight, length, True).to(input.dtype).transpose(1, 2)
    if mask[1]:
        padded, wide = _padded(input.transpose(1, 2), padding[0]), gradient.float()
        sums = [(wide * padded[:, k : k + grad.shape[2]].float()).sum([0, 1]) for k in range(count)]
        by_weight = fl.stack(sums, 1).to(weight.dtype).unsqueeze(1)
    if mask[2]:
        by_bias = gradient.float().sum([0, 1]).to(weight.dtype)
    return by_input, by_weight, by_bias
