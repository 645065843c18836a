"""Groups of nodes by the function or module of the source that they come from (`meta["source_fn_stack"]`, or the stack of
modules)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.fx.graph import Graph
from flambeau.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one call in the source, what goes into them and comes out, and the parameters they use."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def _source_of(node: Node) -> tuple[str, Any] | None:
    """The name of the call that a node belongs to, and what is called."""
    stack = node.meta.get("source_fn_stack")
    if stack:
        return str(stack[-1][0]), stack[-1][1]
    modules = node.meta.get("nn_module_stack")
    if modules and node.op not in ("placeholder", "output"):
        path, (_, kind) = list(modules.items())[-1]
        return path, kind
    if node.op == "call_function":
        return node.name, node.target
    return None


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """From each wanted function or module class to the groups of nodes that come from its calls."""
    groups: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        origin = _source_of(node)
        if origin is not None and any(origin[1] is w or origin[1] == w for w in wanted_sources):
            groups.setdefault(origin[1], {}).setdefault(origin[0], []).append(node)
    partitions = {source: [_partition(nodes, source) for nodes in calls.values()] for source, calls in groups.items()}
    if filter_fn is not None:
        partitions = {
            source: [p for p in parts if all(map(filter_fn, p.output_nodes))] for source, parts in partitions.items()
        }
    return partitions


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    inside = set(nodes)
    inputs: dict[Node, None] = {}
    outputs: dict[Node, None] = {}
    params: dict[Node, None] = {}
    for node in nodes:
        for used in node._input_nodes:
            if used.op == "get_attr":
                params[used] = None
            elif used not in inside:
                inputs[used] = None
        if any(user not in inside for user in node.users):
            outputs[node] = None
        if node.op == "get_attr":
            params[node] = None
    return SourcePartition(nodes, source, list(inputs), list(outputs), list(params))


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether the second group uses a result of the first."""
    return any(used in subgraph1.nodes for node in subgraph2.nodes for used in node._input_nodes)
