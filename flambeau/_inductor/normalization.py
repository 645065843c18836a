"""Normalisation as the compiler records it: in operators that become loops, which fuse with what is around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl

__all__ = ["ALONG_ROWS", "BOTH_DIRECTIONS"]

# Definitions of operators, by full name.
ALONG_ROWS: dict[str, Callable[..., Any]] = {}
BOTH_DIRECTIONS: dict[str, Callable[..., Any]] = {}


def _defines(name: str, table: dict[str, Callable[..., Any]]) -> Callable[[Any], Any]:
    return lambda function: table.setdefault(name, function)


def _shape(input: Any) -> list[int]:
    return [1, input.shape[1]] + [1] * (input.dim() - 2)


def _fits(input: Any, parameters: Sequence[Any], dtypes: Sequence[Any]) -> bool:
    return (
        input.dtype in dtypes
        and input.dim() >= 2
        and 0 not in input.shape
        and all(t is None or t.shape == input.shape[1:2] for t in parameters)
    )


@_defines("native_batch_norm", ALONG_ROWS)
def batch_norm_by_statistics(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """For CPUs: statistics by their kernel, in training, and a pass that normalises."""
    parameters = (weight, bias, running_mean, running_var)
    if not _fits(input, parameters, (fl.float32, fl.float64)):
        return NotImplemented
    if any(t is not None and t.dtype != input.dtype for t in parameters):
        return NotImplemented
    view = _shape(input)
    if training:
        *saved, scale, shift = fl._ops._batch_norm_statistics(
            input, weight, bias, running_mean, running_var, momentum, eps
        )
        return (input * scale.reshape(view) + shift.reshape(view), *saved)  # as eager mode has it, to the last bit
    if running_mean is None or running_var is None:
        return NotImplemented
    mean, rstd = running_mean, fl.rsqrt(running_var + eps)
    saved = rstd[:0], rstd[:0]
    scale = rstd if weight is None else rstd * weight
    out = (input - mean.reshape(view)) * scale.reshape(view)
    return (out if bias is None else out + bias.reshape(view), *saved)


_GPU = (fl.float32, fl.float64, fl.bfloat16, fl.float16)


def _wide(tensor: Any) -> Any:
    return tensor.float() if tensor.dtype in (fl.bfloat16, fl.float16) else tensor


def _variance(x: Any, mean: Any, view: Any, dims: list[int], keepdim: bool, narrow: bool) -> Any:
    """Of numbers of 16 bits in the pass that takes their mean, too: what cancels is below what their bits hold."""
    if narrow:
        return fl.clamp((x * x).mean(dims, keepdim) - mean * mean, min=0)
    spread = x - mean.reshape(view)
    return (spread * spread).mean(dims, keepdim)


@_defines("native_layer_norm", BOTH_DIRECTIONS)
def layer_norm(input: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    """For GPUs: a row stays in registers from its statistics to what is made of it."""
    if input.dtype not in _GPU or 0 in input.shape:
        return NotImplemented
    x, dims = _wide(input), list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = x.mean(dims, True)
    rstd = fl.rsqrt(_variance(x, mean, mean.shape, dims, True, x is not input) + eps)
    out = (x - mean) * rstd
    out = out if weight is None else out * _wide(weight)
    return (out if bias is None else out + _wide(bias)).to(input.dtype), mean, rstd


@_defines("_softmax_backward_data", BOTH_DIRECTIONS)
def softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """For GPUs: both rows stay in registers, and the gradient fuses with what follows."""
    if output.dtype not in _GPU or 0 in output.shape:
        return NotImplemented
    g, y = _wide(grad), _wide(output)
    return ((g - (g * y).sum(dim, True)) * y).to(input_dtype)


@_defines("_log_softmax_backward_data", BOTH_DIRECTIONS)
def log_softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    """For GPUs, as that of softmax."""
    if output.dtype not in _GPU or 0 in output.shape:
        return NotImplemented
    g, y = _wide(grad), _wide(output)
    return (g - fl.exp(y) * g.sum(dim, True)).to(input_dtype)


@_defines("native_batch_norm", BOTH_DIRECTIONS)
def batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """For GPUs, where reductions are loops too."""
    if not _fits(input, (weight, bias, running_mean, running_var), _GPU):
        return NotImplemented
    if not training and (running_mean is None or running_var is None):
        return NotImplemented
    x, view = _wide(input), _shape(input)
    if training:
        dims = [0, *range(2, input.dim())]
        count = input.numel() // input.shape[1]
        mean = x.mean(dims)
        variance = _variance(x, mean, view, dims, False, x is not input)
        for running, now, factor in (
            (running_mean, mean, momentum),
            (running_var, variance, momentum * count / max(count - 1, 1)),
        ):
            if running is not None:
                running.data.copy_(_wide(running) * (1 - momentum) + now * factor)
    else:
        mean, variance = _wide(running_mean), _wide(running_var)
    rstd = fl.rsqrt(variance + eps)
    saved = (mean, rstd) if training else (rstd[:0], rstd[:0])
    scale = rstd if weight is None else rstd * _wide(weight)
    out = (x - mean.reshape(view)) * scale.reshape(view)
    out = out if bias is None else out + _wide(bias.reshape(view))
    return (out.to(input.dtype), *saved)


def _of_channels(numbers: Any, channels: int) -> Any:
    """Numbers of groups (batch, groups), for each channel of theirs."""
    batch, groups = numbers.shape
    return numbers.unsqueeze(2).expand(batch, groups, channels // groups).reshape(batch, channels)


def _group_norm_fits(input: Any, weight: Any, bias: Any) -> bool:
    return input.dim() >= 3 and _fits(input, (weight, bias), _GPU) and input.numel() > input.shape[0] * input.shape[1]


@_defines("native_group_norm", BOTH_DIRECTIONS)
def group_norm(
    input: Any, weight: Any, bias: Any, batch: int, channels: int, elements: int, groups: int, eps: float
) -> Any:
    """For GPUs: sums of each channel, which coalesce however the images lie, then of each group. What is summed is the
    distance from an element of the channel, so that one pass is exact enough."""
    if not _group_norm_fits(input, weight, bias):
        return NotImplemented
    x, dims = _wide(input), list(range(2, input.dim()))
    pivot = x[(slice(None), slice(None), *(slice(0, 1) for _ in dims))]
    spread = x - pivot
    shift, square = spread.mean(dims), (spread * spread).mean(dims)
    means = (pivot.reshape(batch, channels) + shift).reshape(batch, groups, -1)
    within = fl.clamp(square - shift * shift, min=0).reshape(batch, groups, -1)
    mean = means.mean(2)
    between = means - mean.unsqueeze(2)
    rstd = fl.rsqrt((within + between * between).mean(2) + eps)
    scale = _of_channels(rstd, channels)
    scale = scale if weight is None else scale * _wide(weight)
    offset = -_of_channels(mean, channels) * scale
    offset = offset if bias is None else offset + _wide(bias)
    view = [batch, channels] + [1] * len(dims)
    normalized = x * scale.reshape(view) + offset.reshape(view)
    return normalized.to(input.dtype), mean, rstd


@_defines("_group_norm_backward", BOTH_DIRECTIONS)
def group_norm_backward(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, batch: int, channels: int, elements: int, groups: int,
    mask: Sequence[bool],
) -> Any:  # fmt: skip
    """For GPUs: two sums of each channel in one pass; the gradient of the input is g * a + x * b + c for three numbers of
    each channel."""
    if not _group_norm_fits(input, weight, None):
        return NotImplemented
    g, x, dims = _wide(grad), _wide(input), list(range(2, input.dim()))
    view = [batch, channels] + [1] * len(dims)
    middle, inverse = _of_channels(_wide(mean), channels), _of_channels(_wide(rstd), channels)
    total = g.sum(dims)
    along = (g * (x - middle.reshape(view))).sum(dims) * inverse
    none = input.new_empty(0)
    by_input = none
    if mask[0]:
        wide = fl.ones([], dtype=x.dtype, device=x.device) if weight is None else _wide(weight)
        count = elements * (channels // groups)
        of_total = _of_channels((total * wide).reshape(batch, groups, -1).sum(2) / count, channels)
        of_along = _of_channels((along * wide).reshape(batch, groups, -1).sum(2) / count, channels)
        slope = -inverse * inverse * of_along
        offset = -inverse * of_total - slope * middle
        by_input = (g * (inverse * wide).reshape(view) + (x * slope.reshape(view) + offset.reshape(view))).to(
            input.dtype
        )
    dtype = input.dtype if weight is None else weight.dtype
    return by_input, along.sum(0).to(dtype) if mask[1] else none, total.sum(0).to(dtype) if mask[2] else none


@_defines("_batch_norm_backward", BOTH_DIRECTIONS)
def batch_norm_backward(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, training: bool, mask: Sequence[bool]
) -> Any:
    """For GPUs: one pass for the sums, one for the gradient of the input, which is (g + x * a + b) * c for three numbers
    of each channel: nothing as large as the input passes from one to the other."""
    if not _fits(input, (mean, rstd, weight), _GPU):
        return NotImplemented
    view, dims = _shape(input), [0, *range(2, input.dim())]
    count = input.numel() // input.shape[1]
    g, x, mean, rstd = _wide(grad), _wide(input), _wide(mean), _wide(rstd)
    total = g.sum(dims)
    along = (g * ((x - mean.reshape(view)) * rstd.reshape(view))).sum(dims)
    none = input.new_empty(0)
    by_input = none
    if mask[0]:
        rest = g
        if training:
            slope = -rstd * along / count
            rest = g + (x * slope.reshape(view) + (-total / count - mean * slope).reshape(view))
        scale = rstd if weight is None else rstd * _wide(weight)
        by_input = (rest * scale.reshape(view)).to(input.dtype)
    dtype = input.dtype if weight is None else weight.dtype
    return by_input, along.to(dtype) if mask[1] else none, total.to(dtype) if mask[2] else none
