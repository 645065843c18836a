"""Helpers of passes: matching subgraphs, ordering nodes."""

from flambeau.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module
from flambeau.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from flambeau.fx.passes.utils.ordering import legalize_graph, stable_topological_sort

__all__ = [
    "HolderModule", "InternalMatch", "SubgraphMatcher", "compare_graphs", "legalize_graph", "lift_subgraph_as_module",
    "stable_topological_sort",
]  # fmt: skip
