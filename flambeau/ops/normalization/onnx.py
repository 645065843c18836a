"""Normalization and softmax in ONNX."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


@onnx("softmax.int")
def softmax(g: Any, self: Any, dim: int) -> Any:
    return self if self.rank == 0 else g.op("Softmax", g.cast(self, g.dtype), axis=dim)


@onnx("log_softmax.int")
def log_softmax(g: Any, self: Any, dim: int) -> Any:
    return g.op("LogSoftmax", g.cast(self, g.dtype), axis=dim)


@onnx("_softmax")
def _softmax(g: Any, self: Any, dim: int) -> Any:
    return softmax(g, self, dim)


@onnx("_log_softmax")
def _log_softmax(g: Any, self: Any, dim: int) -> Any:
    return log_softmax(g, self, dim)


@onnx("layer_norm")
def layer_norm(g: Any, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    sizes = [int(size) for size in normalized_shape]
    weight = g.constant(fl.ones(sizes, dtype=input.dtype)) if weight is None else weight
    inputs = [input, weight] if bias is None else [input, weight, bias]
    return g.op("LayerNormalization", *inputs, axis=-len(sizes), epsilon=float(eps))


@onnx("native_layer_norm")
def native_layer_norm(g: Any, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return layer_norm(g, input, normalized_shape, weight, bias, eps), None, None


@onnx("rms_norm")
def rms_norm(g: Any, input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    eps = fl.finfo(input.dtype).eps if eps is None else eps
    axes = list(range(-len(normalized_shape), 0))
    wide = g.cast(input, fl.float32) if input.dtype in (fl.float16, fl.bfloat16) else input
    square = g.reduce("ReduceMean", g.op("Mul", wide, wide), [a + input.rank for a in axes], True)
    scale = g.op("Sqrt", g.op("Add", square, g.constant(float(eps), wide.dtype)))
    normal = g.cast(g.op("Div", wide, scale), input.dtype)
    return normal if weight is None else g.op("Mul", normal, weight)


def _channels(g: Any, value: Any, rank: int) -> Any:
    """A value for each channel, in a shape that broadcasts."""
    return g.op("Reshape", value, g.ints([1, -1, *[1] * (rank - 2)]))


@onnx("group_norm")
def group_norm(g: Any, input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    dtype = input.dtype
    grouped = g.op("Reshape", input, g.ints([0, num_groups, -1]))
    ones, zeros = (g.constant(fn([num_groups], dtype=dtype)) for fn in (fl.ones, fl.zeros))
    normal = g.op("InstanceNormalization", grouped, ones, zeros, epsilon=float(eps))
    reshaped = g.reshape(normal, g.result_sizes(), None) if any(not isinstance(s, int) for s in input.shape) else None
    reshaped = g.op("Reshape", normal, g.ints(list(input.shape))) if reshaped is None else reshaped
    reshaped = reshaped if weight is None else g.op("Mul", reshaped, _channels(g, weight, input.rank))
    return reshaped if bias is None else g.op("Add", reshaped, _channels(g, bias, input.rank))


@onnx("native_group_norm")
def native_group_norm(g: Any, input: Any, weight: Any, bias: Any, group: int, eps: float) -> Any:
    whole = g.result
    g.result = whole[0]
    normalized = group_norm(g, input, group, weight, bias, eps)
    g.result = whole
    return normalized, None, None


@onnx("batch_norm")
def batch_norm(
    g: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, eps: float
) -> Any:
    channels = int(input.shape[1])
    weight = g.constant(fl.ones([channels], dtype=input.dtype)) if weight is None else weight
    bias = g.constant(fl.zeros([channels], dtype=input.dtype)) if bias is None else bias
    if not training:
        return g.op("BatchNormalization", input, weight, bias, running_mean, running_var, epsilon=float(eps))
    axes = [0, *range(2, input.rank)]
    centered = g.op("Sub", input, g.reduce("ReduceMean", input, axes, True))
    variance = g.reduce("ReduceMean", g.op("Mul", centered, centered), axes, True)
    normal = g.op("Div", centered, g.op("Sqrt", g.op("Add", variance, g.constant(float(eps), input.dtype))))
    return g.op("Add", g.op("Mul", normal, _channels(g, weight, input.rank)), _channels(g, bias, input.rank))


@onnx("instance_norm")
def instance_norm(
    g: Any, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, use_input_stats: bool, eps: float
) -> Any:
    if not use_input_stats:
        return batch_norm(g, input, weight, bias, running_mean, running_var, False, eps)
    channels = int(input.shape[1])
    weight = g.constant(fl.ones([channels], dtype=input.dtype)) if weight is None else weight
    bias = g.constant(fl.zeros([channels], dtype=input.dtype)) if bias is None else bias
    return g.op("InstanceNormalization", input, weight, bias, epsilon=float(eps))


@onnx("_fused_rms_norm")
def fused_rms_norm(g: Any, input: Any, normalized_shape: Any, weight: Any, eps: Any) -> Any:
    return rms_norm(g, input, normalized_shape, weight, eps), None
