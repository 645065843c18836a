"""Convolutions with batch norm in training that knows of quantization.

The weight that is rounded has to be the one that will be used after training, with batch norm in it. `spread` writes
`conv(x, w) -> batch_norm` as `conv(x, w * factor) / factor + bias -> batch_norm`, where the factor is what the running
statistics say, so that the product with the factor is what gets rounded. `gather` makes one convolution of it again.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ao.quantization.graphs.annotation import KEY
from flambeau.ao.quantization.graphs.fold import attribute_of, is_call, set_attribute
from flambeau.fx import GraphModule, Node
from flambeau.ops import tags

__all__ = ["gather", "spread"]

MARK = "qat_conv_bn"


def _pairs(model: GraphModule) -> list[tuple[Node, Node]]:
    convolutions = tags.operators("convolution")
    pairs = []
    for norm in model.graph.nodes:
        conv = norm.args[0] if is_call(norm, "batch_norm") else None
        if is_call(conv, *convolutions) and len(conv.users) == 1 and conv.args[1].op == "get_attr":  # type: ignore[union-attr]
            pairs.append((conv, norm))
    return pairs  # type: ignore[return-value]


def spread(model: GraphModule) -> None:
    """Scales weights before they are rounded, and results back."""
    aten = fl.ops.aten
    call = model.graph.call_function
    for conv, norm in _pairs(model):
        weight, bias = conv.args[1], conv.args[2] if len(conv.args) > 2 else None
        gain, _, _, variance = norm.args[1:5]
        rank = attribute_of(model, str(weight.target)).dim()
        with model.graph.inserting_before(conv):
            deviation = call(aten.sqrt.default, (call(aten.add.Tensor, (variance, norm.args[7])),))
            factor = call(aten.div.Tensor, (gain, deviation))
            scaled = call(aten.mul.Tensor, (weight, call(aten.reshape.default, (factor, [-1] + [1] * (rank - 1)))))
        _like(scaled, weight)
        conv.args = (conv.args[0], scaled, None, *conv.args[3:])
        shape = [1, -1] + [1] * (rank - 2)
        with model.graph.inserting_before(norm):
            result = call(aten.div.Tensor, (conv, call(aten.reshape.default, (factor, shape))))
            _like(result, conv)
            result.meta[MARK] = True
            if bias is not None:
                result = call(aten.add.Tensor, (result, call(aten.reshape.default, (bias, shape))))
                _like(result, conv)
                result.meta[MARK] = True
        norm.replace_input_with(conv, result)
        norm.meta[MARK] = {"conv": conv, "weight": weight, "bias": bias, "scaled": scaled}
    model.recompile()


def _like(node: Node, source: Any) -> None:
    if "val" in source.meta:
        node.meta["val"] = source.meta["val"]


def gather(model: GraphModule) -> None:
    """One convolution with batch norm in its weight and bias."""
    for norm in list(model.graph.nodes):
        parts = norm.meta.get(MARK)
        if not isinstance(parts, dict):
            continue
        conv, weight, bias, scaled = (parts[name] for name in ("conv", "weight", "bias", "scaled"))
        value = lambda node: attribute_of(model, str(node.target))  # noqa: E731
        gain, shift, mean, variance = (value(node) for node in norm.args[1:5])  # type: ignore[no-untyped-call]
        factor = gain / (variance + norm.args[7]).sqrt()
        own = value(weight)  # type: ignore[no-untyped-call]
        old_bias = 0.0 if bias is None else value(bias)  # type: ignore[no-untyped-call]
        path = str(weight.target)
        set_attribute(model, path, own * factor.reshape(-1, *[1] * (own.dim() - 1)))
        bias_path = f"{path}_bias" if bias is None else str(bias.target)
        set_attribute(model, bias_path, shift + (old_bias - mean) * factor)
        scaled.replace_all_uses_with(weight)
        with model.graph.inserting_before(conv):
            fetched = model.graph.get_attr(bias_path)
        conv.args = (*conv.args[:2], fetched, *conv.args[3:])
        norm.replace_all_uses_with(conv)
        if KEY in norm.meta:
            conv.meta[KEY] = norm.meta[KEY]
        del norm.meta[MARK]
    for node in list(model.graph.nodes):  # batches are not counted any more
        counted = is_call(node, "add_.Tensor") and str(getattr(node.args[0], "target", "")).endswith(
            "num_batches_tracked"
        )
        if counted and not node.users:
            model.graph.erase_node(node)
    model.graph.eliminate_dead_code()
    model.recompile()
