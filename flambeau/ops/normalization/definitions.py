"""Definitions of normalization and softmax in terms of other operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.normalization import records as normalization
from flambeau.ops.normalization.softmax import log_softmax_gradient, softmax_gradient
from flambeau.ops.rules import definition


@definition("_softmax")
def _softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    raised = fl.exp(self - fl.amax(self, dim, keepdim=True))
    return raised / fl.sum(raised, dim, keepdim=True)


@definition("_log_softmax")
def _log_softmax(self: Any, dim: int, half_to_float: bool = False) -> Any:
    lowered = self - fl.amax(self, dim, keepdim=True)
    return lowered - fl.log(fl.sum(fl.exp(lowered), dim, keepdim=True))


@definition("native_layer_norm")
def native_layer_norm(input: Any, normalized_shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    mean = fl.mean(input, dims, keepdim=True)
    spread = input - mean
    rstd = fl.rsqrt(fl.mean(spread * spread, dims, keepdim=True) + eps)
    out = spread * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, rstd


@definition("_fused_rms_norm")
def _fused_rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any, eps: float | None) -> Any:
    input = input.contiguous()
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    wide = input.float() if input.dtype in (fl.bfloat16, fl.float16) else input
    eps = fl.finfo(wide.dtype).eps if eps is None else eps
    rstd = fl.rsqrt(fl.mean(wide * wide, dims, keepdim=True) + eps)
    out = wide * rstd
    return (out if weight is None else out * weight).to(input.dtype), rstd


@definition("native_group_norm")
def native_group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    rows = input.reshape(N, group, -1)
    mean = fl.mean(rows, [2], keepdim=True)
    spread = rows - mean
    rstd = fl.rsqrt(fl.mean(spread * spread, [2], keepdim=True) + eps)
    out = (spread * rstd).reshape(input.shape)
    view = [C] + [1] * (input.dim() - 2)
    out = out if weight is None else out * weight.reshape(view)
    return out if bias is None else out + bias.reshape(view), mean.reshape(N, group), rstd.reshape(N, group)


def _masked(grads: Any, like: Any, mask: Sequence[bool]) -> Any:
    return tuple(g if wanted else like.new_empty(0) for g, wanted in zip(grads, mask))


@definition("_layer_norm_backward")
def _layer_norm_backward(grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, ndim: int, mask: Any) -> Any:
    return _masked(normalization.layer_norm_gradients(grad, input, mean, rstd, weight, ndim, mask), input, mask)


@definition("_group_norm_backward")
def _group_norm_backward(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int, mask: Any
) -> Any:
    grads = normalization.group_norm_gradients(grad, input, mean, rstd, weight, N, C, HxW, group, mask)
    return _masked(grads, input, mask)


@definition("_batch_norm_backward")
def _batch_norm_backward(
    grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, training: bool, mask: Sequence[bool]
) -> Any:
    return _masked(normalization.batch_norm_gradients(grad, input, mean, rstd, weight, training, mask), input, mask)


@definition("_batch_norm_statistics")
def _batch_norm_statistics(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> Any:
    parameters = [t for t in (weight, bias, running_mean, running_var) if t is not None]
    saved_dtype = input.dtype  # of the statistics; the factors are single where the input is half
    if saved_dtype in (fl.bfloat16, fl.float16):
        input = input.float()
        saved_dtype = fl.float32 if any(t.dtype is fl.float32 for t in parameters) else saved_dtype
    mean, rstd = _channel_statistics(input, running_mean, running_var, momentum, eps)
    scale = rstd if weight is None else rstd * weight
    return mean.to(saved_dtype), rstd.to(saved_dtype), scale, -mean * scale if bias is None else bias - mean * scale


def _channel_statistics(input: Any, running_mean: Any, running_var: Any, momentum: float, eps: float) -> Any:
    dims = [0, *range(2, input.dim())]
    count = input.numel() // input.shape[1]
    mean = fl.mean(input, dims)
    spread = input - mean.reshape([1, input.shape[1]] + [1] * (input.dim() - 2))
    variance = fl.mean(spread * spread, dims)
    if running_mean is not None:
        running_mean.data.copy_(running_mean * (1 - momentum) + mean * momentum)
    if running_var is not None:
        running_var.data.copy_(running_var * (1 - momentum) + variance * (momentum * count / max(count - 1, 1)))
    return mean, fl.rsqrt(variance + eps)


@definition("native_batch_norm")
def native_batch_norm(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> Any:
    view = [1, input.shape[1]] + [1] * (input.dim() - 2)
    if training:
        saved = mean, rstd = _channel_statistics(input, running_mean, running_var, momentum, eps)
        spread = input - mean.reshape(view)
    else:
        spread = input - running_mean.reshape(view)
        rstd = fl.rsqrt(running_var + eps)
        saved = input.new_empty(0), input.new_empty(0)
    out = spread * rstd.reshape(view)
    out = out if weight is None else out * weight.reshape(view)
    return (out if bias is None else out + bias.reshape(view), *saved)


@definition("_softmax_backward_data")
def _softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return softmax_gradient(grad_output, output, dim)


@definition("_log_softmax_backward_data")
def _log_softmax_backward_data(grad_output: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return log_softmax_gradient(grad_output, output, dim)


@definition("softmax.int", "special_softmax")
def softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return fl._softmax(self if dtype is None else self.to(dtype), dim, False)


@definition("log_softmax.int", "special_log_softmax")
def log_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return fl._log_softmax(self if dtype is None else self.to(dtype), dim, False)
