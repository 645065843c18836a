"""Several products with one right factor as a single one: `a @ w` and `b @ w` as the rows of `cat([a, b]) @ w`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau.fx._ordering import stable_topological_sort
from flambeau.fx._symbolic_trace import symbolic_trace
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(result: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """A product of stacked factors, split into the product of each."""
    return tuple(flambeau.split(result, [x.shape[0] for x in inputs]))


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether a may need the value of b; beyond the depth the answer is that it may."""
    if a is b or search_depth == 0:
        return True
    return any(may_depend_on(used, b, search_depth - 1) for used in a._input_nodes)


def are_nodes_independent(nodes: Sequence[Node]) -> bool:
    """Whether none of the nodes needs the value of another."""
    return not any(may_depend_on(a, b) for a in nodes for b in nodes if a is not b)


def merge_matmul(in_mod: Any) -> GraphModule:
    """A traced module in which independent products with the same right factor are computed at once."""
    gm = in_mod if isinstance(in_mod, GraphModule) else symbolic_trace(in_mod)
    by_factor: dict[Any, list[Node]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target in (flambeau.matmul, operator.matmul) and len(node.args) == 2:
            factor = node.args[1]
            key = factor.target if isinstance(factor, Node) and factor.op == "get_attr" else factor
            by_factor.setdefault(key, []).append(node)
    for products in by_factor.values():
        if len(products) > 1 and are_nodes_independent(products):
            _merge(gm, products)
    stable_topological_sort(gm)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def _merge(gm: GraphModule, products: list[Node]) -> None:
    factors = [node.args[0] for node in products]
    with gm.graph.inserting_after(products[-1]):
        stacked = gm.graph.call_function(flambeau.cat, (factors,), {})
    with gm.graph.inserting_after(stacked):
        product = gm.graph.call_function(flambeau.matmul, (stacked, products[0].args[1]), {})
    with gm.graph.inserting_after(product):
        parts = gm.graph.call_function(split_result_tensors, (product, factors), {})
    with gm.graph.inserting_after(parts):
        for i, node in enumerate(products):
            node.replace_all_uses_with(gm.graph.call_function(operator.getitem, (parts, i), {}))
