"""Matching patterns that name some of their values: `return result, {"conv": conv}`."""

from __future__ import annotations

from flambeau.fx._matcher import InternalMatch, SubgraphMatcher
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_names(pattern_gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """Take the dict of names off a pattern's results."""
    graph: Graph = pattern_gm.graph
    output = graph.output_node()
    result = output.args[0]
    if not isinstance(result, tuple) or not result or not isinstance(result[-1], dict):
        raise AssertionError(f"[matcher] expected a pattern that returns a dict of names last, got {result}")
    *values, names = result
    with graph.inserting_after(output):
        graph.output(tuple(values) if len(values) != 1 else values[0])
    graph.erase_node(output)
    pattern_gm.recompile()
    return pattern_gm, dict(names)


class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A matcher whose matches say in `name_node_map` which node has which of the pattern's names."""

    def __init__(
        self,
        pattern_gm: GraphModule,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        pattern_gm, self.name_node_map = _split_names(pattern_gm)
        super().__init__(pattern_gm.graph, match_output, match_placeholder, remove_overlapping_matches, ignore_literals)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        matches = super().match(graph, node_name_match)
        for match in matches:
            match.name_node_map = {name: match.nodes_map[node] for name, node in self.name_node_map.items()}
        return matches
