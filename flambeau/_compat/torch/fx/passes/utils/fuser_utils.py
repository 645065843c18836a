"""Replacing groups of nodes by one call of a module that contains them."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Any

from flambeau.fx._ordering import stable_topological_sort
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.utils.common import lift_subgraph_as_module

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


def topo_sort(nodes: Sequence[Node]) -> list[Node]:
    """Nodes in an order in which each comes after those it uses."""
    inside = dict.fromkeys(nodes)
    done: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in done:
            for used in node._input_nodes:
                if used in inside:
                    visit(used)
            done[node] = None

    for node in nodes:
        visit(node)
    return list(done)


def validate_partition(partition: Sequence[Node]) -> bool:
    """Whether nodes can become one: no path from one of them leaves the group and comes back."""
    inside = set(partition)
    stack = [user for node in partition for user in node.users if user not in inside]
    seen = set(stack)
    while stack:
        for user in stack.pop().users:
            if user in inside:
                return False
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: Sequence[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module of the given nodes, sorted; and the values that go into it and come out of it."""
    for node in nodes:
        if node.graph.owning_module is not gm or node._erased:
            raise AssertionError(f"[fuse] expected nodes of the module, got {node}, which is not one of them")
    if not validate_partition(nodes):
        raise AssertionError("[fuse] expected nodes that no path leaves and enters again, got a cycle")
    inside = dict.fromkeys(nodes)
    graph = Graph()
    values: dict[Node, Node] = {}

    def value_of(node: Node) -> Node:
        if node not in values:
            values[node] = graph.placeholder(node.name, type_expr=node.type)
            values[node].meta = copy.copy(node.meta)
            inputs.append(node)
        return values[node]

    inputs: list[Node] = []
    for node in nodes:  # placeholders first
        for used in node._input_nodes:
            if used not in inside:
                value_of(used)
    for node in nodes:
        values[node] = graph.node_copy(node, value_of)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    results = tuple(values[node] for node in outputs)
    graph.output(results[0] if len(results) == 1 and not always_return_tuple else results)
    graph.lint()
    module, _ = lift_subgraph_as_module(gm, graph, comp_name="", class_name=module_name)
    return module, tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call a module in place of the nodes whose values it computes."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    point = insertion_point if insertion_point is not None else max(orig_outputs)
    with gm.graph.inserting_after(point):
        call = gm.graph.call_module(name, args=orig_inputs, kwargs=None)
        output = sub_gm.graph.output_node().args[0]
        if not isinstance(output, tuple):
            orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
            return gm
    with gm.graph.inserting_after(call):
        for i, original in reversed(list(enumerate(orig_outputs))):
            item = gm.graph.call_function(operator.getitem, (call, i))
            original.replace_all_uses_with(item, propagate_meta=True)
    call.meta["val"] = tuple(node.meta.get("val") for node in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: Sequence[Node]) -> None:
    """Remove nodes, users before what they use."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule, partitions: Sequence[Any], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Make each group of nodes one call of a submodule called `prefix` and a number."""
    for number, nodes in enumerate(partitions):
        ordered = topo_sort(list(nodes))
        module, inputs, outputs = fuse_as_graphmodule(
            gm, ordered, f"{prefix}{number}", always_return_tuple=always_return_tuple
        )
        if outputs:
            insert_subgm(gm, module, inputs, outputs, insertion_point=max(ordered))
        erase_nodes(gm, ordered)
        stable_topological_sort(gm)
        gm.graph.lint()
    gm.recompile()
    return gm
