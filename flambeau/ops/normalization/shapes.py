"""Shape rules of normalization and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.geometry import Geometry, Int, Ints, check_bias, equal_sizes, of_self, require
from flambeau.ops.rules import shape

shape(*("_softmax _log_softmax softmax.int log_softmax.int special_softmax special_log_softmax").split())(of_self)


@shape("_softmax_backward_data", "_log_softmax_backward_data")
def same_as_gradient(grad_output: Geometry) -> Ints:
    return grad_output.sizes


@shape("native_layer_norm")
def layer_norm(
    input: Geometry, normalized_shape: Ints, weight: Geometry | None = None, bias: Geometry | None = None
) -> list[Ints]:
    for parameter in (weight, bias):
        for own, wanted in zip(parameter.sizes if parameter is not None else (), normalized_shape):
            equal_sizes(own, wanted, "layer_norm")
    lead = len(input.sizes) - len(normalized_shape)
    for own, wanted in zip(input.sizes[lead:], normalized_shape):
        equal_sizes(own, wanted, "layer_norm")
    statistics = (*input.sizes[:lead], *([1] * len(normalized_shape)))
    return [input.sizes, statistics, statistics]


@shape("_fused_rms_norm")
def rms_norm(input: Geometry, normalized_shape: Ints, weight: Geometry | None) -> list[Ints]:
    return layer_norm(input, normalized_shape, weight)[:2]


@shape("native_batch_norm")
def batch_norm(
    input: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    running_mean: Geometry | None,
    running_var: Geometry | None,
) -> list[Ints]:
    for parameter in (weight, bias, running_mean, running_var):
        check_bias(parameter, input.sizes[1])
    statistics = (input.sizes[1],)  # as on the meta device; without training the kernels return none
    return [input.sizes, statistics, statistics]


@shape("batch_norm")
def batch_norm_result(
    input: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    running_mean: Geometry | None,
    running_var: Geometry | None,
) -> Ints:
    return batch_norm(input, weight, bias, running_mean, running_var)[0]


@shape("_batch_norm_statistics")
def batch_norm_statistics(
    input: Geometry,
    weight: Geometry | None,
    bias: Geometry | None,
    running_mean: Geometry | None,
    running_var: Geometry | None,
) -> list[Ints]:
    return batch_norm(input, weight, bias, running_mean, running_var)[1:] * 2


@shape("_batch_norm_backward", "_layer_norm_backward", "_group_norm_backward")
def norm_backward(input: Geometry, mask: Sequence[bool], ndim: Any, weight: Geometry | None) -> list[Ints]:
    inner = input.sizes[1:2] if ndim is None else input.sizes[len(input.sizes) - ndim :]
    return [s if wanted else (0,) for s, wanted in zip([input.sizes, inner, inner], mask)]


@shape("native_group_norm")
def group_norm(
    input: Geometry, weight: Geometry | None, bias: Geometry | None, N: Int, C: Int, group: Int
) -> list[Ints]:
    for parameter in (weight, bias):
        check_bias(parameter, C)
    require(C % group == 0, f"[group_norm] expected channels that {group} divides, got {C}")
    return [input.sizes, (N, group), (N, group)]
