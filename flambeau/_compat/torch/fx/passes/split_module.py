"""Splitting a graph into submodules: every node says which part it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau._compat.settings import refuse
from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg
from flambeau.nn.modules.module import Module

__all__ = ["split_module"]


class _Part:
    """One of the submodules in the making."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.inputs: dict[Node, None] = {}
        self.outputs: dict[Node, None] = {}
        self.needs: set[str] = set()
        self.graph = Graph()
        self.targets: dict[str, Any] = {}


def split_module(
    m: GraphModule,
    root_m: Module | None,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module that does what `m` does by calling submodules `submod_0`, ..., one for each value of split_callback.

    qualname_map, if given, is filled with where modules and attributes went: new path to old.
    """
    refuse("split_module", tuple_return=tuple_return)
    prefix = f"submod_{partition_affix}_" if partition_affix else "submod_"
    part_of: dict[Node, str] = {}
    parts: dict[str, _Part] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue  # attributes go wherever they are used
        name = str(split_callback(node))
        part_of[node] = name
        parts.setdefault(name, _Part(name)).nodes.append(node)
    for name, part in parts.items():
        for node in part.nodes:
            for used in node._input_nodes:
                if used.op == "get_attr":
                    continue
                if part_of.get(used) != name:
                    part.inputs[used] = None
                    if used in part_of:
                        parts[part_of[used]].outputs[used] = None
                        part.needs.add(part_of[used])
    returned = m.graph.output_node()
    for used in returned._input_nodes:
        if used in part_of:
            parts[part_of[used]].outputs[used] = None
    order = _ordered(parts)

    base = Graph()
    values: dict[Node, Any] = {}
    attributes: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op == "placeholder":
            values[node] = base.node_copy(node)
        elif node.op == "get_attr" and (node in returned._input_nodes or not node.users):
            values[node] = base.node_copy(node)
            attributes[str(node.target)] = _fetch(m, str(node.target))
    for name in order:
        part = parts[name]
        submodule = f"{prefix}{name}"
        attributes[submodule] = _built(m, part, submodule, qualname_map, bool(keep_original_node_name))
        call = base.call_module(submodule, tuple(values[n] for n in part.inputs))
        outputs = list(part.outputs)
        if len(outputs) == 1:
            values[outputs[0]] = call
        else:
            import operator

            for i, node in enumerate(outputs):
                values[node] = base.call_function(operator.getitem, (call, i))
    base.output(map_arg(returned.args[0], lambda n: values[n]), returned.type)
    return GraphModule(attributes, base, type(m).__name__)


def _ordered(parts: dict[str, _Part]) -> list[str]:
    """Parts in an order in which each comes after what it needs."""
    left = list(parts)
    done: list[str] = []
    while left:
        ready = next((name for name in left if parts[name].needs <= set(done)), None)
        if ready is None:
            raise RuntimeError(
                f"[split_module] expected parts that do not need each other, got a circle among {', '.join(left)}"
            )
        done.append(ready)
        left.remove(ready)
    return done


def _fetch(m: Any, path: str) -> Any:
    for atom in path.split("."):
        m = getattr(m, atom)
    return m


def _built(
    m: GraphModule, part: _Part, submodule: str, qualname_map: dict[str, str] | None, keep_names: bool
) -> GraphModule:
    graph = part.graph
    values: dict[Node, Node] = {}
    for node in part.inputs:
        placeholder = graph.placeholder(node.name, type_expr=node.type)
        placeholder.meta = node.meta.copy()
        values[node] = placeholder

    def value_of(node: Node) -> Node:
        if node not in values:  # an attribute, used here for the first time
            values[node] = adopt(node)
        return values[node]

    def adopt(node: Node) -> Node:
        path = str(node.target).replace(".", "_")
        part.targets[path] = _fetch(m, str(node.target))
        if qualname_map is not None:
            qualname_map[f"{submodule}.{path}"] = str(node.target)
        placeholder = graph.create_node("get_attr", path, name=node.name, type_expr=node.type)
        placeholder.meta = node.meta.copy()
        return placeholder

    for node in part.nodes:
        target = node.target
        if node.op == "call_module":
            target = str(node.target).replace(".", "_")
            part.targets[target] = _fetch(m, str(node.target))
            if qualname_map is not None:
                qualname_map[f"{submodule}.{target}"] = str(node.target)
        args, kwargs = map_arg(node.args, value_of), map_arg(dict(node.kwargs), value_of)
        placeholder = graph.create_node(node.op, target, args, kwargs, node.name if keep_names else None, node.type)
        placeholder.meta = node.meta.copy()
        values[node] = placeholder
    outputs = tuple(values[n] for n in part.outputs)
    graph.output(outputs[0] if len(outputs) == 1 else outputs)
    return GraphModule(part.targets, graph)


def split_module_simple(
    m: GraphModule, node_to_partition: dict[Node, int], *, partition_affix: str | None = None
) -> GraphModule:
    """`split_module` with the part of each node given as a dict; nodes that are not in it go to part 0."""
    return split_module(m, m, lambda node: node_to_partition.get(node, 0), partition_affix=partition_affix)
