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
