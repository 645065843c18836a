"""Arithmetic on constants that frozen modules do once: normalisation and arithmetic after convolutions and linear layers become part of their weights."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import _C
from flambeau.jit import _types as T
from flambeau.jit._ir import Graph, Node, Value
from flambeau.jit._passes import eliminate_dead_code
from flambeau.jit._peephole import CONVOLUTION

# Whether arithmetic scales a layer's result or shifts it, and what is done to the operand first.
_ARITHMETIC: dict[str, tuple[bool, Any]] = {}


def _arithmetic(name: str, scales: bool, prepared: Any) -> None:
    _ARITHMETIC[f"aten::{name}"] = (scales, prepared)


_arithmetic("add", False, lambda v: v)
_arithmetic("sub", False, lambda v: -v)
_arithmetic("mul", True, lambda v: v)
_arithmetic("div", True, lambda v: 1 / v)


def fold_operators(graph: Graph) -> None:
    for node in list(graph.walk()):
        if node._kind == "aten::batch_norm":
            _fold_batch_norm(graph, node)
        elif node._kind in _ARITHMETIC:
            _fold_arithmetic(graph, node)
    eliminate_dead_code(graph)


def _is_layer(node: Node) -> bool:
    return node._kind == "aten::linear" or CONVOLUTION.fullmatch(node._kind) is not None


def _fold_arithmetic(graph: Graph, node: Node) -> None:
    """`conv(x) * constant`: one value for each channel is part of weight and bias."""
    layer = node._inputs[0].node()
    if not CONVOLUTION.fullmatch(layer._kind) or _used_elsewhere(node):
        return
    weight, bias, operand = _tensor(layer._inputs[1]), _tensor(layer._inputs[2]), node._inputs[1].toIValue()
    if weight is None or (bias is None and layer._inputs[2].type() != T.NONE):
        return
    if len(node._inputs) > 2 and node._inputs[2].toIValue() != 1:
        return
    values = _for_each_channel(operand, weight)
    if values is None:
        return
    scales, prepared = _ARITHMETIC[node._kind]
    values = prepared(values)
    start = flambeau.zeros(weight.shape[0], dtype=weight.dtype) if bias is None else bias
    if scales:
        weight, start = weight * values.reshape([-1, *[1] * (weight.dim() - 1)]), start * values
    else:
        start = start + values
    _set_weights(graph, layer, weight, start)
    node._outputs[0].replaceAllUsesWith(layer._outputs[0])
    node.destroy()


def _for_each_channel(operand: Any, weight: Any) -> Any:
    """The operand as one value for each output channel; None if it is something else."""
    channels, dims = weight.shape[0], weight.dim()
    if isinstance(operand, (int, float)) and not isinstance(operand, bool):
        return flambeau.full((channels,), float(operand), dtype=weight.dtype)
    if not isinstance(operand, _C.Tensor) or flambeau.promote_types(operand.dtype, weight.dtype) != weight.dtype:
        return None
    if operand.numel() == 1 and operand.dim() <= dims:
        return operand.reshape(1).to(weight.dtype).expand(channels).clone()
    shape = [1] * (dims - operand.dim()) + list(operand.shape)
    if len(shape) != dims or shape != [1, channels, *[1] * (dims - 2)]:
        return None
    return operand.reshape(channels).to(weight.dtype)


def _set_weights(graph: Graph, layer: Node, weight: Any, bias: Any) -> None:
    graph.insert_block, graph.insert_before = layer.owner, layer  # type: ignore[assignment]
    layer.replaceInput(1, graph.insertConstant(weight.detach(), T.TENSOR))
    layer.replaceInput(2, graph.insertConstant(bias.detach(), T.TENSOR))
    graph.insert_block, graph.insert_before = graph, None


def _tensor(value: Value) -> Any:
    constant = value.toIValue() if value.node()._kind == "prim::Constant" else None
    return constant if isinstance(constant, _C.Tensor) else None


def _used_elsewhere(node: Node) -> bool:
    """Whether the convolution's result is used for more than its number of dimensions."""
    return any(use.user is not node and use.user._kind != "aten::dim" for use in node._inputs[0]._uses)


def _fold_batch_norm(graph: Graph, node: Node) -> None:
    conv = node._inputs[0].node()
    if not _is_layer(conv) or _used_elsewhere(node):
        return
    weight, mean, variance = _tensor(conv._inputs[1]), _tensor(node._inputs[3]), _tensor(node._inputs[4])
    if weight is None or mean is None or variance is None or node._inputs[5].toIValue() is not False:
        return
    bias = _tensor(conv._inputs[2])
    if bias is None and conv._inputs[2].type() != T.NONE:
        return
    gamma, beta, eps = _tensor(node._inputs[1]), _tensor(node._inputs[2]), node._inputs[7].toIValue()
    scale = flambeau.rsqrt(variance + eps)
    scale = scale if gamma is None else scale * gamma
    start = flambeau.zeros_like(mean) if bias is None else bias
    shift = (start - mean) * scale + (flambeau.zeros_like(mean) if beta is None else beta)
    shape = [-1, *([1] * (weight.dim() - 1))]
    _set_weights(graph, conv, weight * scale.reshape(shape), shift)
    node._outputs[0].replaceAllUsesWith(conv._outputs[0])
    node.destroy()
