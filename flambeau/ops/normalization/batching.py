"""Batching rules of normalization and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.batching import Held, along, one_by_one, shifted
from flambeau.ops.rules import batching

batching("_softmax", "_log_softmax")(along)


@batching("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(mode: Any, func: Any, grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    if not isinstance(grad, Held) or not isinstance(output, Held) or output.rank == 0:
        return one_by_one(mode, func, grad, output, dim, input_dtype)
    return func(grad.value, output.value, shifted(dim, output.rank), input_dtype)


@batching("native_layer_norm")
def layer_norm(mode: Any, func: Any, input: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    if not isinstance(input, Held):
        return one_by_one(mode, func, input, shape, weight, bias, eps)
    if not isinstance(weight, Held) and not isinstance(bias, Held):
        return func(input.value, shape, weight, bias, eps)
    out, mean, rstd = func(input.value, shape, None, None, eps)
    for parameter, combine in ((weight, fl.mul), (bias, fl.add)):
        if parameter is not None:
            out = combine(out, parameter.padded(input.rank) if isinstance(parameter, Held) else parameter)
    return out, mean, rstd
