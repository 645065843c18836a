"""In-place operators where memory is no longer needed: a graph of functional operators that uses less of it."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau._ops import OpOverload
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.fx.passes.fake_tensor_prop import FakeTensorProp

__all__ = ["reinplace"]

_VIEW = 1  # the flag of operators whose results share memory with their first argument


def reinplace(gm: GraphModule, *sample_args: Any) -> GraphModule:
    """Replace operators of a graph (as make_fx makes it) by their in-place forms where the tensor they would write to is
    neither an input nor used later, itself or through a view. Shapes are found from the sample arguments."""
    FakeTensorProp(gm).propagate(*sample_args)
    memory = _memory(gm)
    last_use: dict[Node, int] = {}
    order = {node: number for number, node in enumerate(gm.graph.nodes)}
    for node in gm.graph.nodes:
        for used in node._input_nodes:
            last_use[memory[used]] = max(last_use.get(memory[used], 0), order[node])
    owned = {root for root in memory.values() if root.op == "call_function"}
    for node in gm.graph.nodes:
        form = _inplace_form(node)
        if form is None:
            continue
        target = node.args[0]
        root = memory[target]
        others = [used for used in node._input_nodes if used is not target]
        free = root in owned and last_use[root] <= order[node] and all(memory[o] is not root for o in others)
        if not free or not _same_geometry(target, node) or not _is_whole(target):
            continue
        node.target = form
        # What the operator wrote is the memory of its argument from now on.
        result_memory = memory[node]
        for other, place in memory.items():
            if place is result_memory:
                memory[other] = root
        last_use[root] = max(last_use[root], last_use.get(result_memory, 0))
    gm.recompile()
    return gm


def _memory(gm: GraphModule) -> dict[Node, Node]:
    """For each node, the node whose memory its value lies in."""
    memory: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        memory[node] = node
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
            continue
        if isinstance(node.target, OpOverload):
            _, flags, _ = flambeau._C._operator_info(node.target)
            written = node.target._schema.arguments[0].alias_info
            if flags & _VIEW or (written is not None and written.is_write):
                memory[node] = memory[node.args[0]]
        elif getattr(node.target, "__name__", "") == "getitem":
            memory[node] = memory[node.args[0]]
    return memory


def _inplace_form(node: Node) -> OpOverload | None:
    """The operator that writes the same into its first argument."""
    op = node.target
    if (
        node.op != "call_function"
        or not isinstance(op, OpOverload)
        or not node.args
        or not isinstance(node.args[0], Node)
    ):
        return None
    name = f"{op._opname}_" + (f".{op._overloadname}" if op._overloadname != "default" else "")
    if op._opname.endswith("_") or not flambeau._C._operator_exists(name):
        return None
    overload: OpOverload = flambeau._C._operator_object(name)
    return overload


def _same_geometry(a: Node, b: Node) -> bool:
    x, y = a.meta.get("val"), b.meta.get("val")
    if not isinstance(x, flambeau.Tensor) or not isinstance(y, flambeau.Tensor):
        return False
    return x.shape == y.shape and x.dtype == y.dtype and tuple(x.stride()) == tuple(y.stride())


def _is_whole(node: Node) -> bool:
    """Whether no two elements of a tensor share memory, as in one that was expanded."""
    value = node.meta["val"]
    return all(stride != 0 or size == 1 for size, stride in zip(value.shape, value.stride()))
