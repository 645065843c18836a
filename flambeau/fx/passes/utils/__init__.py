"""Helpers of passes: matching subgraphs, ordering nodes."""

from flambeau.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from flambeau.fx.passes.utils.ordering import legalize_graph, stable_topological_sort

__all__ = ["InternalMatch", "SubgraphMatcher", "legalize_graph", "stable_topological_sort"]
