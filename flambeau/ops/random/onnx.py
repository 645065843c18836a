"""Dropout and random numbers in ONNX."""

from __future__ import annotations

from typing import Any

from flambeau.ops.rules import onnx


@onnx("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
def dropout(g: Any, input: Any, p: float, train: bool) -> Any:
    if train and p > 0:
        return g.op("Dropout", input, g.constant(float(p), input.dtype), g.constant(True))
    return input


@onnx("native_dropout")
def native_dropout(g: Any, input: Any, p: float, train: Any) -> Any:
    return dropout(g, input, p, bool(train)), None
