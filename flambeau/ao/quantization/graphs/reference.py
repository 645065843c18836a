"""Pairs of quantize and dequantize in place of observers: the reference form of a quantized graph.

The form is that of exported programs, `quantized_decomposed::*` on plain tensors, or with `decomposed=False` that of FX mode,
`quantize_per_tensor` and `dequantize()` on quantized tensors.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._tensor.quantized_types import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_symmetric,
    qint8,
    qint32,
    quint8,
)
from flambeau.ao.quantization.graphs.fold import attribute_of
from flambeau.ao.quantization.graphs.observe import is_observer
from flambeau.fx import GraphModule, Node

__all__ = ["OBSERVER", "observers_to_pairs", "stored_dtype"]

OBSERVER = "quantization_observer"  # in the meta of a quantize node: the observer that chose its grid
_STORED = {qint8: fl.int8, quint8: fl.uint8, qint32: fl.int32}
_PER_CHANNEL = (per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams)


def stored_dtype(dtype: Any) -> Any:
    """The integer dtype of a quantized one."""
    return _STORED.get(dtype, dtype)


def observers_to_pairs(model: GraphModule, decomposed: bool = True) -> None:
    """Replaces the observers of a graph, in place."""
    modules = dict(model.named_modules(remove_duplicate=False))
    grids: dict[int, Any] = {}
    for node in list(model.graph.nodes):
        if node.op != "call_module":
            continue
        observer = modules.get(str(node.target))
        if observer is None or not is_observer(observer):
            continue
        replacement = _pair(model, node, observer, decomposed, grids)
        node.replace_all_uses_with(replacement, propagate_meta=False)
        model.graph.erase_node(node)
    model.delete_all_unused_submodules()
    model.graph.lint()
    model.recompile()


def _pair(model: GraphModule, node: Node, observer: Any, decomposed: bool, grids: dict[int, Any]) -> Node:
    value: Node = node.args[0]
    if observer.dtype is fl.float16:
        with model.graph.inserting_before(node):
            half = model.graph.call_method("to", (value, fl.float16))
            return model.graph.call_method("to", (half, fl.float32))
    if not hasattr(observer, "calculate_qparams") or stored_dtype(observer.dtype) is fl.float32:
        return value
    if getattr(observer, "is_dynamic", False):
        return _dynamic(model, node, value, observer) if decomposed else value
    grid = grids.get(id(observer))
    if grid is None:
        if value.op == "get_attr" and _has_seen_nothing(observer):  # a weight, of a model that needed no examples
            observer(attribute_of(model, str(value.target)))
        grid = grids[id(observer)] = observer.calculate_qparams()
    per_channel = observer.qscheme in _PER_CHANNEL
    make = _decomposed if decomposed else _quantized
    with model.graph.inserting_before(node):
        return make(model, value, observer, grid, per_channel, node)


def _has_seen_nothing(observer: Any) -> bool:
    least = getattr(getattr(observer, "activation_post_process", observer), "min_val", None)
    return least is not None and (not least.numel() or bool(fl.isinf(least).all()))


def _bounds(observer: Any) -> tuple[int, int, Any]:
    from flambeau.ao.quantization.observer import range_of

    low, high = range_of(observer.dtype)
    least, most = getattr(observer, "quant_min", None), getattr(observer, "quant_max", None)
    return low if least is None else least, high if most is None else most, stored_dtype(observer.dtype)


def _attribute(model: GraphModule, name: str, tensor: Any) -> Node:
    number = 0
    while hasattr(model, f"{name}_{number}"):
        number += 1
    model.register_buffer(f"{name}_{number}", tensor.detach().clone())
    return model.graph.get_attr(f"{name}_{number}")


def _with_values(node: Node, like: Node, dtype: Any) -> Node:
    """Notes a fake result, from which later passes and export read shapes."""
    value = like.meta.get("val")
    if isinstance(value, fl.Tensor):
        node.meta["val"] = value.to(dtype)
    return node


def _decomposed(model: GraphModule, value: Node, observer: Any, grid: Any, per_channel: bool, node: Node) -> Node:
    from flambeau.ao.quantization.graphs import decomposed  # noqa: F401

    ops = fl.ops.quantized_decomposed
    scale, zero_point = grid
    call = model.graph.call_function
    ends = _bounds(observer)
    if per_channel:
        axis = getattr(observer, "ch_axis", 0)
        arguments: tuple[Any, ...] = (
            _attribute(model, "_scale", scale.float()), _attribute(model, "_zero_point", zero_point.to(fl.int64)), axis, *ends
        )  # fmt: skip
        quantize, dequantize = ops.quantize_per_channel.default, ops.dequantize_per_channel.default
    else:
        arguments = (float(scale.reshape(-1)[0]), int(zero_point.reshape(-1)[0]), *ends)
        quantize, dequantize = ops.quantize_per_tensor.default, ops.dequantize_per_tensor.default
    quantized = _with_values(call(quantize, (value, *arguments)), value, ends[2])
    if per_channel and not bool(zero_point.any()):  # kernels are quicker when they know it
        arguments = (arguments[0], None, *arguments[2:])
    return _with_values(call(dequantize, (quantized, *arguments)), value, fl.float32)


def _dynamic(model: GraphModule, node: Node, value: Node, observer: Any) -> Node:
    """The grid is chosen when the model runs."""
    from flambeau.ao.quantization.graphs import decomposed  # noqa: F401

    ops = fl.ops.quantized_decomposed
    low, high, dtype = _bounds(observer)
    symmetric = getattr(observer, "qscheme", None) is per_tensor_symmetric
    choose = ops.choose_qparams_symmetric.tensor if symmetric else ops.choose_qparams.tensor
    eps = getattr(observer, "eps", None)
    eps = fl.finfo(fl.float32).eps if eps is None else float(eps)
    with model.graph.inserting_before(node):
        import operator

        call = model.graph.call_function
        grid = call(choose, (value, low, high, eps, dtype))
        scale, zero_point = call(operator.getitem, (grid, 0)), call(operator.getitem, (grid, 1))
        arguments = (scale, zero_point, low, high, dtype)
        quantized = _with_values(call(ops.quantize_per_tensor.tensor, (value, *arguments)), value, dtype)
        return _with_values(call(ops.dequantize_per_tensor.tensor, (quantized, *arguments)), value, fl.float32)


def _quantized(model: GraphModule, value: Node, observer: Any, grid: Any, per_channel: bool, node: Node) -> Node:
    scale, zero_point = grid
    graph = model.graph
    prefix = value.name.strip("_")
    scales = _attribute(model, f"{prefix}_scale", scale.float())
    zeros = _attribute(model, f"{prefix}_zero_point", zero_point)
    if per_channel:
        axis = getattr(observer, "ch_axis", 0)
        quantized = graph.call_function(fl.quantize_per_channel, (value, scales, zeros, axis, observer.dtype))
    else:
        quantized = graph.call_function(fl.quantize_per_tensor, (value, scales, zeros, observer.dtype))
    quantized.meta[OBSERVER] = observer
    return graph.call_method("dequantize", (quantized,))
