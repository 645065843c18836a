"""Backends that count and keep what they are given, for tests of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._dynamo.backends import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounterWithBackend:
    """Another backend, with the number of graphs and operators that it was given."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.frame_count = self.op_count = 0
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Any, **options: Any) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += sum(node.op.startswith("call") for node in gm.graph.nodes)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs, **options)

    def clear(self) -> None:
        self.frame_count = self.op_count = 0
        self.graphs = []


class CompileCounter(CompileCounterWithBackend):
    def __init__(self) -> None:
        super().__init__("eager")


class EagerAndRecordGraphs(CompileCounter):
    pass
