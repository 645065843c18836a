"""Losses over class indices in ONNX."""

from __future__ import annotations

from typing import Any

from flambeau.ops.rules import onnx


@onnx("_nll_loss_forward")
def nll_loss(g: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    kind = ("none", "mean", "sum")[reduction]
    inputs = [self, target] if weight is None else [self, target, weight]
    return g.op("NegativeLogLikelihoodLoss", *inputs, reduction=kind, ignore_index=ignore_index), None


@onnx("_cross_entropy_forward")
def cross_entropy(g: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    logs = g.op("LogSoftmax", self, axis=1)
    return (*nll_loss(g, logs, target, weight, reduction, ignore_index), None)
