"""Small helpers under the names PyTorch has for them."""

from __future__ import annotations

from typing import Any

from flambeau.fx._ordering import legalize_graph, stable_topological_sort
from flambeau.fx.node import Node

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]

__all__ = ["CALLABLE_NODE_OPS", "get_node_target", "is_node_output_tensor", "legalize_graph", "stable_topological_sort"]


def get_node_target(submodules: dict[str, Any], node: Node) -> str:
    """What a call node calls, as text: a class for modules, a dotted name for functions, the method's name."""
    if node.op == "call_module":
        module = submodules[str(node.target)]
        return f"{type(module).__module__}.{type(module).__name__}"
    return node._pretty_print_target(node.target)


def is_node_output_tensor(node: Node) -> bool:
    """Whether shape propagation found a tensor."""
    return "tensor_meta" in node.meta or hasattr(node.meta.get("val"), "shape")
