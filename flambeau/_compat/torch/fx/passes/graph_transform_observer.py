"""What a pass did to a graph: which nodes it made, and which it removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.fx.graph_module import GraphModule

__all__ = ["GraphTransformObserver"]


class GraphTransformObserver:
    """A context around a pass. Afterwards `created_nodes` and `erased_nodes` have the names."""

    def __init__(
        self, gm: GraphModule, passname: str, subsystem: str | None = None, log_url: str | None = None
    ) -> None:
        self.gm = gm
        self.passname = passname
        self.subsystem = subsystem
        self.created_nodes: set[str] = set()
        self.erased_nodes: set[str] = set()

    def apply_gm_pass(self, pass_fn: Callable[[GraphModule], Any]) -> Any:
        with self:
            return pass_fn(self.gm)

    def apply_graph_pass(self, pass_fn: Callable[[Any], Any]) -> Any:
        with self:
            return pass_fn(self.gm.graph)

    def __enter__(self) -> GraphTransformObserver:
        self._before = {node.name for node in self.gm.graph.nodes}
        return self

    def __exit__(self, *error: object) -> None:
        after = {node.name for node in self.gm.graph.nodes}
        self.created_nodes |= after - self._before
        self.erased_nodes |= self._before - after
