"""Subgraphs as modules of their own, and comparing graphs."""

from __future__ import annotations

from flambeau.fx._matcher import SubgraphMatcher
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule, _assign_attr
from flambeau.nn.modules.module import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


class HolderModule(Module):
    """A module that owns what a graph refers to."""

    def __init__(self, d: dict[str, Module]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A graph made of a module's nodes as a module, which gets what the nodes refer to; and from paths in the new module
    to paths in the old one."""
    holder = HolderModule({})
    original_path: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        path = str(node.target)
        value: object = gm
        for atom in path.split("."):
            value = getattr(value, atom)
        _assign_attr(value, holder, path)
        original_path[f"{comp_name}.{path}" if comp_name else path] = path
    return GraphModule(holder, subgraph, class_name), original_path


def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs are the same but for the names of their nodes."""
    if len(left.nodes) != len(right.nodes):
        return False
    return len(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right)) > 0
