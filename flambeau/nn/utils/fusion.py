"""Batch normalisation in evaluation mode folded into the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import flambeau
from flambeau.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused(weight: Any, bias: Any, mean: Any, var: Any, eps: float, scale: Any, shift: Any, dim: int) -> Any:
    """Weight and bias of one layer that does what the layer and the normalisation did. dim holds the outputs."""
    bias = flambeau.zeros_like(mean) if bias is None else bias
    scale = flambeau.ones_like(mean) if scale is None else scale
    shift = flambeau.zeros_like(mean) if shift is None else shift
    factor = scale * (var + eps).rsqrt()
    shape = [1] * weight.dim()
    shape[dim] = -1
    new_weight = (weight * factor.reshape(shape)).to(weight.dtype)
    new_bias = ((bias - mean) * factor + shift).to(bias.dtype)
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias, bias.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Any, conv_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any, transpose: bool = False
) -> tuple[Parameter, Parameter]:
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fold(layer: Any, bn: Any, dim: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("[fuse] expected both modules in evaluation mode, got one in training")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("[fuse] expected a normalisation that tracks statistics, got one that does not")
    result = copy.deepcopy(layer)
    with flambeau.no_grad():
        result.weight, result.bias = _fused(
            layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, dim
        )
    return result


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution and a batch norm in evaluation as one convolution.

    - conv, bn: the modules; transpose: of a transposed convolution.

    >>> nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 2, 3).eval(), nn.BatchNorm2d(2).eval())
    Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
    """
    return _fold(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer and a batch norm in evaluation as one linear layer.

    - linear, bn: the modules.

    >>> nn.utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval())
    Linear(in_features=2, out_features=3, bias=True)
    """
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            f"[fuse_linear_bn_eval] expected as many features as outputs, got {bn.num_features} for {linear.out_features}"
        )
    return _fold(linear, bn, 0)
