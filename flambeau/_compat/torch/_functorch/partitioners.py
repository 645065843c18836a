"""How a joint graph of forward and backward is divided into one graph for each."""

from __future__ import annotations

from typing import Any

from flambeau.fx import Graph, GraphModule, Node

__all__ = ["default_partition", "min_cut_rematerialization_partition"]


def default_partition(
    joint_module: Any, _joint_inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:
    """Everything that does not depend on the gradients of the outputs goes into forward; backward gets what it uses."""
    graph = joint_module.graph
    nodes = list(graph.nodes)
    results, gradients = _flat_outputs(graph.output_node().args[0], num_fwd_outputs)
    late = {n for n in nodes if n.op == "placeholder" and str(n.target).startswith("tangents")}
    for node in nodes:
        if node.op != "output" and any(used in late for used in node.all_input_nodes):
            late.add(node)
    early = [n for n in nodes if n not in late and n.op != "output"]
    used = [u for n in nodes if n in late for u in n.all_input_nodes if u not in late]
    used += [g for g in gradients if isinstance(g, Node) and g not in late]
    saved = list(dict.fromkeys(used))

    seen: dict[Node, Any] = {}
    forward = Graph()
    for node in early:
        seen[node] = forward.node_copy(node, seen.__getitem__)
    forward.output([seen[r] if isinstance(r, Node) else r for r in [*results, *saved]])
    backward, seen = Graph(), {}
    for node in saved:
        seen[node] = backward.placeholder(node.name)
        seen[node].meta = dict(node.meta)
    for node in nodes:
        if node in late:
            seen[node] = backward.node_copy(node, seen.__getitem__)
    backward.output([seen[g] if isinstance(g, Node) else g for g in gradients])
    modules = []
    for part in (forward, backward):
        part.eliminate_dead_code()
        part.lint()
        modules.append(GraphModule(joint_module, part))
    return modules[0], modules[1]


def min_cut_rematerialization_partition(
    joint_module: Any, _joint_inputs: Any, compiler: str = "inductor", *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:
    """The default division: what is computed again in backward is chosen by the library's own compiler, not here."""
    return default_partition(joint_module, _joint_inputs, num_fwd_outputs=num_fwd_outputs)


def _flat_outputs(outputs: Any, count: int) -> tuple[list[Any], list[Any]]:
    if len(outputs) == 2 and all(isinstance(part, (list, tuple)) for part in outputs):
        return list(outputs[0]), list(outputs[1])
    return list(outputs[:count]), list(outputs[count:])
