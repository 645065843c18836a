"""Common subexpressions: what is computed twice from the same values is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import flambeau
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node


def eliminate_common_subexpressions(
    graph: Graph | GraphModule, is_banned: Callable[[Node], bool] | None = None
) -> bool:
    """Let later nodes that compute what an earlier one does use its result. Whether anything changed.

    Random and impure calls, module calls, and everything that something written in place depends on stay as they are.
    """
    if isinstance(graph, GraphModule):
        changed = eliminate_common_subexpressions(graph.graph, is_banned)
        if changed:
            graph.recompile()
        return changed
    kept_apart = _written(graph)
    known: dict[Hashable, Node] = {}
    changed = False
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method", "get_attr") or node in kept_apart or node.is_impure():
            continue
        if is_banned is not None and is_banned(node):
            continue
        try:
            key: Hashable = (node.op, _key(node.target), _key(node.args), _key(dict(node.kwargs)))
            hash(key)
        except TypeError:
            continue
        first = known.setdefault(key, node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            changed = True
    return changed


def _written(graph: Graph) -> set[Node]:
    """Nodes that something written in place may share memory with."""
    written: set[Node] = set()
    for node in reversed(graph.nodes):
        writes = node.op in ("call_function", "call_method") and node.is_impure(impure_random=False)
        if writes or node in written:
            written.update(node._input_nodes)
            if writes:
                written.add(node)
    # Views made from a written tensor show what is written.
    for node in graph.nodes:
        if any(used in written for used in node._input_nodes):
            written.add(node)
    return written


def _key(value: Any) -> Hashable:
    """A value by which arguments are compared: types count, so that 1, 1.0 and True are three things."""
    if isinstance(value, Node):
        return ("node", id(value))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, tuple(_key(v) for v in value))
    if isinstance(value, dict):
        return ("dict", tuple((k, _key(v)) for k, v in value.items()))
    if isinstance(value, slice):
        return ("slice", _key(value.start), _key(value.stop), _key(value.step))
    if isinstance(value, flambeau.Tensor):
        return ("tensor", id(value))
    return (type(value), value)
