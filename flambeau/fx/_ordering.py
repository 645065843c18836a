"""Putting nodes in an order in which every value is made before it is used."""

from __future__ import annotations

import heapq

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node


def stable_topological_sort(gm: GraphModule | Graph) -> GraphModule | Graph:
    """Reorder the nodes of a graph so that values come before their uses, otherwise as they are."""
    graph = gm.graph if isinstance(gm, GraphModule) else gm
    nodes = list(graph.nodes)
    order = {node: number for number, node in enumerate(nodes)}
    waiting = {node: len(node._input_nodes) for node in nodes}
    ready = [order[node] for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    done: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        done.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, order[user])
    if len(done) != len(nodes):
        stuck = ", ".join(n.name for n in nodes if waiting[n])
        raise RuntimeError(f"[topological_sort] expected a graph without cycles, got one among {stuck}")
    # The output stays last even when it needs nothing.
    done.sort(key=lambda n: n.op == "output")
    if done != nodes:
        for node in done:
            graph._root.prepend(node)
    return gm


def legalize_graph(gm: GraphModule) -> GraphModule:
    """A graph module whose nodes may be in any order, put in order."""
    stable_topological_sort(gm)
    return gm
