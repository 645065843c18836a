"""Attention in ONNX: products, a mask and a softmax."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


def _causal(g: Any, query: Any, key: Any) -> Any:
    """True where a position may attend to another."""
    sizes = [g.dim(query, -2), g.dim(key, -2)]
    ones = g.op("ConstantOfShape", g.ints(sizes), dtype=fl.int32, value=fl.ones([1], dtype=fl.int32))
    return g.cast(g.op("Trilu", ones, g.constant(0, fl.int64), upper=0), fl.bool)


def _repeated(g: Any, x: Any, times: int) -> Any:
    """Heads of keys and values that several heads of the query share."""
    if times == 1:
        return x
    wide = g.unsqueeze(x, x.rank - 2)
    tiles = [1] * (x.rank + 1)
    tiles[-3] = times
    tiled = g.op("Tile", wide, g.ints(tiles))
    sizes = [g.dim(x, d) for d in range(x.rank)]
    sizes[-3] = int(x.shape[-3]) * times
    return g.op("Reshape", tiled, g.ints(sizes))


@onnx("scaled_dot_product_attention")
def attention(
    g: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: Any,
    enable_gqa: bool,
) -> Any:
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    if enable_gqa:
        times = int(query.shape[-3]) // int(key.shape[-3])
        key, value = _repeated(g, key, times), _repeated(g, value, times)
    rank = query.rank
    order = [*range(rank - 2), rank - 1, rank - 2]
    root = g.constant(math.sqrt(factor), query.dtype)
    scores = g.op("MatMul", g.op("Mul", query, root), g.op("Mul", g.op("Transpose", key, perm=order), root))
    lowest = g.constant(float("-inf"), query.dtype)
    if is_causal:
        scores = g.op("Where", _causal(g, query, key), scores, lowest, dtype=query.dtype)
    if attn_mask is not None and attn_mask.dtype == fl.bool:
        scores = g.op("Where", attn_mask, scores, lowest, dtype=query.dtype)
    elif attn_mask is not None:
        scores = g.op("Add", scores, g.cast(attn_mask, query.dtype))
    weights = g.op("Softmax", scores, axis=-1)
    if attn_mask is not None and attn_mask.dtype == fl.bool:
        # A row without any position to attend to is zero.
        weights = g.op(
            "Where", g.op("IsNaN", weights, dtype=fl.bool), g.constant(0.0, query.dtype), weights, dtype=query.dtype
        )
    return g.op("MatMul", weights, value)
