"""Elimination of common subexpressions as a pass object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.passes.cse import eliminate_common_subexpressions
from flambeau.fx.passes.infra.pass_base import PassBase, PassResult


def get_CSE_banned_ops() -> set[Any]:
    """Operators that are never merged, beyond those that are random or write."""
    return set()


class CSEPass(PassBase):
    """Runs the elimination, sparing the operators given."""

    def __init__(self, banned_ops: set[Callable[..., Any]] | None = None) -> None:
        self.banned_ops = banned_ops or get_CSE_banned_ops()
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        graph = Graph()
        graph.output(graph.graph_copy(graph_module.graph, {}))
        result = GraphModule(graph_module, graph)  # the one that was given stays as it is
        changed = eliminate_common_subexpressions(result, lambda node: node.target in self.banned_ops)
        return PassResult(result, changed)
