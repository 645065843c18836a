"""Embeddings in ONNX."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.rules import onnx


@onnx("embedding")
def embedding(g: Any, weight: Any, indices: Any) -> Any:
    return g.op("Gather", weight, indices, axis=0)


@onnx("one_hot")
def one_hot(g: Any, tensor: Any, num_classes: int) -> Any:
    if num_classes < 0:
        raise g.unsupported("a number of classes that the data decides")
    depth = g.constant([num_classes], fl.int64)
    return g.op("OneHot", tensor, depth, g.constant([0, 1], fl.int64), dtype=fl.int64, axis=-1)


@onnx("_embedding_bag")
def embedding_bag(
    g: Any, weight: Any, indices: Any, offsets: Any, mode: int, per_sample_weights: Any, include_last_offset: bool, padding_idx: int
) -> Any:  # fmt: skip
    """Rows are added to the bag that their place lies in: the last one that begins at or before it."""
    if g.opset < (18 if mode == 2 else 16):
        raise g.unsupported("bags of embeddings need opset 18")
    if include_last_offset:
        offsets = g.op("Slice", offsets, g.ints([0]), g.ints([-1]), g.ints([0]))
    offsets, flat = g.cast(offsets, fl.int64), g.cast(indices, fl.int64)
    places = g.op("Range", 0, g.op("Squeeze", g.op("Shape", flat, dtype=fl.int64)), 1, dtype=fl.int64)
    later = g.op("Less", g.unsqueeze(places, 1), g.unsqueeze(offsets, 0), dtype=fl.bool)
    begun = g.op("Cast", g.op("Not", later, dtype=fl.bool), dtype=fl.int64, to=7)
    bags = g.op("Sub", g.op("ReduceSum", begun, g.ints([1]), dtype=fl.int64, keepdims=1), 1)
    rows = g.op("Gather", weight, flat, axis=0)
    if per_sample_weights is not None:
        rows = g.op("Mul", rows, g.unsqueeze(per_sample_weights, 1))
    counted = g.op(
        "ConstantOfShape", g.op("Shape", flat, dtype=fl.int64), dtype=weight.dtype, value=fl.ones(1, dtype=weight.dtype)
    )
    if padding_idx >= 0:
        padding = g.op("Equal", flat, padding_idx, dtype=fl.bool)
        counted = g.op("Where", padding, g.constant(0, weight.dtype), counted, dtype=weight.dtype)
        outside = g.constant(-float("inf") if mode == 2 else 0, weight.dtype)
        rows = g.op("Where", g.unsqueeze(padding, 1), outside, rows, dtype=weight.dtype)
    sizes = g.op("Shape", offsets, dtype=fl.int64)
    shape = g.op("Concat", sizes, g.op("Shape", weight, dtype=fl.int64, start=1), dtype=fl.int64, axis=0)
    start = fl.full([1], -float("inf") if mode == 2 else 0, dtype=weight.dtype)
    empty = g.op("ConstantOfShape", shape, dtype=weight.dtype, value=start)
    added = g.op("ScatterND", empty, bags, rows, dtype=weight.dtype, reduction="max" if mode == 2 else "add")
    if mode == 2:  # bags without rows are zero
        return (
            g.op("Where", g.op("IsInf", added, dtype=fl.bool), g.constant(0, weight.dtype), added, dtype=weight.dtype),
            None,
            None,
            None,
        )
    if mode == 1:
        none = g.op("ConstantOfShape", sizes, dtype=weight.dtype, value=fl.zeros(1, dtype=weight.dtype))
        counts = g.op("ScatterND", none, bags, counted, dtype=weight.dtype, reduction="add")
        added = g.op("Div", added, g.unsqueeze(g.op("Max", counts, 1), 1), dtype=weight.dtype)
    return added, None, None, None
