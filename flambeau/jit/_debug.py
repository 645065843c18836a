"""What `get_debug_state` returns: the graph that runs."""

from __future__ import annotations

from typing import Any


class ExecutionPlan:
    def __init__(self, graph: Any) -> None:
        self.graph = graph


class DebugState:
    """The state of a function's execution; there is one plan."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.execution_plans = {0: ExecutionPlan(graph)}
        self.fallback = None
