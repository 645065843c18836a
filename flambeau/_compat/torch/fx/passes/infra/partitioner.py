"""Grouping supported nodes into as few parts as possible, and fusing each part into a submodule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.operator_support import OperatorSupportBase
from flambeau.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """A set of nodes to be run together."""

    def __init__(self, id: int | None = None, nodes: Iterable[Node] | None = None) -> None:
        self.id = id
        self.nodes: dict[Node, None] = dict.fromkeys(nodes or ())

    def __repr__(self) -> str:
        return f"Partition({self.id}: {', '.join(n.name for n in self.nodes)})"

    def size(self) -> int:
        return len(self.nodes)


class CapabilityBasedPartitioner:
    """Finds parts of a graph that a backend supports.

    allows_single_node_partition   keep parts of one node
    non_compute_ops                targets that alone do not make a part worth it
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Iterable[Any] | None = None,
        allowed_single_node_partition_ops: Iterable[Any] | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = set(non_compute_ops or ())
        self.allowed_single = set(allowed_single_node_partition_ops or ())

    def propose_partitions(self) -> list[Partition]:
        """Parts that do not depend on each other in a circle. Each node joins the latest part it can."""
        modules = dict(self.graph_module.named_modules())
        part_of: dict[Node, int] = {}
        needs: dict[Node, set[int]] = {}  # parts that a node depends on, through whatever nodes
        after: list[set[int]] = []  # parts that a part depends on
        parts: list[Partition] = []
        for node in self.graph_module.graph.nodes:
            reached: set[int] = set()
            for used in node._input_nodes:
                reached |= needs[used]
                if used in part_of:
                    reached.add(part_of[used])
            for part in list(reached):
                reached |= after[part]
            needs[node] = reached
            if node.op not in ("call_function", "call_method", "call_module"):
                continue
            if not self.operator_support.is_node_supported(modules, node):
                continue
            direct = {part_of[used] for used in node._input_nodes if used in part_of}
            # A part may be joined if nothing between it and the node lies outside of it.
            outside: set[int] = set()
            for used in node._input_nodes:
                if used not in part_of:
                    outside |= needs[used] | {p for n in needs[used] for p in after[n]}
            chosen = next(
                (
                    p
                    for p in sorted(direct, reverse=True)
                    if p not in outside and not any(p in after[o] for o in reached - {p})
                ),
                None,
            )
            if chosen is None:
                chosen = len(parts)
                parts.append(Partition(chosen))
                after.append(set())
            parts[chosen].nodes[node] = None
            part_of[node] = chosen
            after[chosen] |= reached - {chosen}
            needs[node] = reached | {chosen}
        return [p for p in parts if self._is_worth_it(p)]

    def _is_worth_it(self, part: Partition) -> bool:
        compute = [n for n in part.nodes if n.target not in self.non_compute_ops]
        if len(compute) > 1 or self.allows_single_node_partition:
            return bool(compute)
        return len(compute) == 1 and compute[0].target in self.allowed_single

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """The module with each part as a submodule, called in its place."""
        return fuse_by_partitions(self.graph_module, [part.nodes for part in partitions], prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        return self.fuse_partitions(self.propose_partitions(), prefix)
