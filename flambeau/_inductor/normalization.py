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


def _fits(input: Any, given: Sequence[Any], dtypes: Sequence[Any]) -> bool:
    return (
        input.dtype in dtypes
        and input.dim() >= 2
        and 0 not in input.shape
        and all(t is None or t.shape == input.shape[1:2] for t in given)
    )


@_defines("native_batch_norm", ALONG_ROWS)
def batch_norm_by_statistics(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """For CPUs: statistics by their kernel, in training, and a pass that normalises."""
    given = (weight, bias, running_mean, running_var)
    if not _fits(input, given, (fl.float32, fl.float64)):
        return NotImplemented
    if any(t is not None and t.dtype != input.dtype for t in given):
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
