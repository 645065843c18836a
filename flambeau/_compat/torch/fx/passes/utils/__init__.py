"""Helpers of passes: matching subgraphs, ordering nodes."""

from flambeau.fx._matcher import InternalMatch, SubgraphMatcher
from flambeau.fx._ordering import legalize_graph, stable_topological_sort
from flambeau.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module

__all__ = [
    "HolderModule", "InternalMatch", "SubgraphMatcher", "compare_graphs", "legalize_graph", "lift_subgraph_as_module",
    "stable_topological_sort",
]  # fmt: skip
