"""Changing targets everywhere, and how many bytes nodes take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, Target
from flambeau.fx.passes.shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


class size_bytes(NamedTuple):
    """Bytes of a node's result, and of the result with the parameters it uses."""

    output_size: int
    total_size: int


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Target, new_op: str, new_target: Target
) -> None:
    """Let all nodes of one kind and target have another kind and target."""
    graph = Graph()
    values: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            fill: Callable[[Node], Node] = values.__getitem__
            args, kwargs = flambeau.fx.map_arg(node.args, fill), flambeau.fx.map_arg(dict(node.kwargs), fill)
            values[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            values[node] = graph.node_copy(node, values.__getitem__)
    fx_module.graph = graph


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Any] | None = None) -> None:
    """Set `size_bytes` of all nodes; with example inputs, shapes are found first."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op == "output":
            break
        node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    metadata = node.meta.get("tensor_meta")
    if not isinstance(metadata, TensorMetadata):
        raise RuntimeError(f"[graph_manipulation] expected a node with tensor_meta, got {node}; run ShapeProp first")
    return metadata


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """Bytes of one node."""
    meta = get_tensor_meta(node)
    own = flambeau.empty((), dtype=meta.dtype).element_size() * flambeau.Size(meta.shape).numel()
    total = own
    if node.op == "call_module":
        module = fx_module.get_submodule(str(node.target))
        total += sum(p.numel() * p.element_size() for p in module.parameters())
    elif node.op == "get_attr":
        total = own
    return size_bytes(own, total)
