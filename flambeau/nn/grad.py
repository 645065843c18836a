"""Gradients of convolutions as functions of their own."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn.modules.utils import _ntuple


def _gradient(
    dims: int, which: int, grad_output: Tensor, input: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:  # fmt: skip
    full = _ntuple(dims)
    options = (full(stride), full(padding), full(dilation), False, (0,) * dims, groups)
    wanted = [which == 0, which == 1, False]
    return fl._ops._convolution_backward(grad_output, input, weight, *options, wanted)[which]


def _input(dims: int, input_size: Any, weight: Tensor, grad_output: Tensor, *options: Any) -> Tensor:
    # Only the shape of the input matters.
    input = grad_output.new_empty(1).expand(input_size)
    return _gradient(dims, 0, grad_output, input, weight, *options)


def _weight(dims: int, input: Tensor, weight_size: Any, grad_output: Tensor, *options: Any) -> Tensor:
    weight = grad_output.new_empty(1).expand(weight_size)
    return _gradient(dims, 1, grad_output, input, weight, *options)


def conv1d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    """The gradient of conv1d's input."""
    return _input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    """The gradient of conv1d's weight."""
    return _weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    """The gradient of conv2d's input."""
    return _input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    """The gradient of conv2d's weight."""
    return _weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(input_size, weight, grad_output, stride=1, padding=0, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    """The gradient of conv3d's input."""
    return _input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(input, weight_size, grad_output, stride=1, padding=0, dilation=1, groups=1):  # type: ignore[no-untyped-def]
    """The gradient of conv3d's weight."""
    return _weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)
