"""Types of items of tuples and lists, from the types of what they are taken from."""

from __future__ import annotations

import operator
import typing

from flambeau.fx.graph import Graph

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph: Graph) -> None:
    """Set `type` of nodes that take an item of a tuple, a named tuple or a list whose type is annotated."""
    for node in graph.nodes:
        if node.target is not operator.getitem or node.type is not None:
            continue
        source, index = node.args
        kind = source.type
        if kind is None:
            continue
        if hasattr(kind, "_fields"):
            hints = typing.get_type_hints(kind)
            if isinstance(index, int):
                node.type = hints.get(kind._fields[index])
            continue
        inner = typing.get_args(kind)
        if typing.get_origin(kind) is tuple and inner:
            node.type = inner[0] if inner[-1] is ... else inner[index] if isinstance(index, int) else None
        elif typing.get_origin(kind) is list and inner:
            node.type = inner[0]
