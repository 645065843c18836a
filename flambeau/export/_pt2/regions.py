"""Parts of a graph under mixed precision as calls of `wrap_with_autocast`, which is how files have them.

Graphs in memory have the switches that `autocast` throws when it is entered and left; those between two such groups become a
graph of their own.
"""

from __future__ import annotations

import operator
from typing import Any

from flambeau import _C
from flambeau._dynamo.functions import AUTOCAST_SWITCHES
from flambeau._higher_order_ops.operators import higher_order
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node

__all__ = ["with_regions"]


def with_regions(module: GraphModule) -> GraphModule:
    """The module with regions of mixed precision as graphs; the same one where it has none."""
    if not any(node.target in AUTOCAST_SWITCHES for node in module.graph.nodes if node.op == "call_function"):
        return module
    return _Regions(module).rewritten()


class _Regions:
    def __init__(self, module: GraphModule) -> None:
        self.result = GraphModule(module, Graph())
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.count = 0

    def rewritten(self) -> GraphModule:
        graph = Graph()
        for node in self.nodes:
            if node.op == "get_attr":
                setattr(self.result, str(node.target), getattr(self.module, str(node.target)))
        self._copy(0, len(self.nodes), self.result, graph, {})
        self.result.graph = graph
        return self.result

    def _copy(self, begin: int, end: int, owner: Any, graph: Graph, values: dict[Node, Node]) -> None:
        at = begin
        while at < end:
            node = self.nodes[at]
            if node.target is _C._set_autocast_enabled:
                last = self._end_of(at)
                self._region(at, last, owner, graph, values)
                at = last
                while at < end and self.nodes[at].target in AUTOCAST_SWITCHES and not self._enters(at):
                    at += 1
                continue
            if node.op == "get_attr" and owner is not self.result:
                setattr(owner, str(node.target), getattr(self.module, str(node.target)))
            values[node] = graph.node_copy(node, values.__getitem__)
            at += 1

    def _enters(self, at: int) -> bool:
        """Whether the switch is the first of those that enter a region."""
        group = [node.target for node in self.nodes[at : at + 4]]
        return self.nodes[at].target is _C._set_autocast_enabled and _C._autocast_increment_nesting in group[1:]

    def _end_of(self, at: int) -> int:
        """The first switch that leaves the region."""
        depth = 0
        for i in range(at, len(self.nodes)):
            if self.nodes[i].target is _C._autocast_increment_nesting:
                depth += 1
            elif self.nodes[i].target is _C._autocast_decrement_nesting:
                depth -= 1
                if depth == 0:
                    return i
        raise RuntimeError("[export.save] expected regions of autocast that end in the program, got one that does not")

    def _region(self, begin: int, end: int, owner: Any, graph: Graph, values: dict[Node, Node]) -> None:
        device, enabled = self.nodes[begin].args
        dtype = cache = None
        at = begin + 1
        while self.nodes[at].target in AUTOCAST_SWITCHES and not self._enters(at) and at < end:
            if self.nodes[at].target is _C._set_autocast_dtype:
                dtype = self.nodes[at].args[1]
            elif self.nodes[at].target is _C._set_autocast_cache_enabled:
                cache = self.nodes[at].args[0]
            at += 1
        body = self.nodes[at:end]
        inside = set(body)
        inputs = list(dict.fromkeys(n for node in body for n in node.all_input_nodes if n not in inside))
        results = [n for n in body if n.op == "call_function" and any(user not in inside for user in n.users)]
        inner = Graph()
        held: dict[Node, Node] = {}
        for node in inputs:
            held[node] = inner.placeholder(node.name)
            held[node].meta.update(node.meta)
        part = GraphModule({}, Graph())
        self._copy(at, end, part, inner, held)
        inner.output(tuple(held[node] for node in results))
        part.graph = inner
        name = f"autocast_graph_{self.count}"
        self.count += 1
        setattr(owner, name, part)
        operands = [values[node] for node in inputs]
        call = graph.call_function(
            higher_order("wrap_with_autocast"), (device, dtype, enabled, cache, graph.get_attr(name), *operands)
        )
        described = next((node.meta for node in body if node.meta.get("nn_module_stack")), {})
        call.meta.update({key: described[key] for key in ("nn_module_stack", "stack_trace") if key in described})
        call.meta["val"] = tuple(node.meta["val"] for node in results)
        for i, node in enumerate(results):
            values[node] = graph.create_node("call_function", operator.getitem, (call, i), {}, node.name)
            values[node].meta.update(node.meta)
