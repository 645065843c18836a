"""Replacing one activation by another, in whatever form it is called."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node
from flambeau.nn.modules.module import Module


def _forms(name: str) -> set[Any]:
    """The functions of an activation's name."""
    places = (flambeau, flambeau.nn.functional, flambeau.special)
    return {function for place in places if (function := getattr(place, name, None)) is not None}


def replace_activation(gm: GraphModule, old: str, new: str | Module, **options: Any) -> int:
    """Replace the calls of an activation, as functions (`F.relu(x)`), methods (`x.relu()`) and modules (`nn.ReLU`).

    new is the name of a function of nn.functional, called with the options, or a module. The number of replaced calls.
    """
    graph = gm.graph
    functions = _forms(old) | _forms(f"{old}_")
    module_names = {old.replace("_", ""), old}
    target: Any = new
    if isinstance(new, Module):
        path = f"_{type(new).__name__.lower()}"
        number = 0
        while hasattr(gm, path):
            number += 1
            path = f"_{type(new).__name__.lower()}_{number}"
        gm.add_module(path, new)
        target = path
    else:
        target = getattr(flambeau.nn.functional, new, None) or getattr(flambeau, new)
    count = 0
    for node in list(graph.nodes):
        if not _calls(gm, node, functions, old, module_names):
            continue
        with graph.inserting_before(node):
            if isinstance(new, Module):
                fresh = graph.call_module(target, (node.args[0] if node.args else node.kwargs["input"],))
            else:
                fresh = graph.call_function(target, (node.args[0] if node.args else node.kwargs["input"],), options)
        fresh.meta.update(node.meta)
        node.replace_all_uses_with(fresh)
        graph.erase_node(node)
        count += 1
    if count:
        gm.delete_all_unused_submodules()
        gm.recompile()
    elif isinstance(new, Module):
        delattr(gm, target)
    return count


def _calls(gm: GraphModule, node: Node, functions: set[Any], name: str, modules: set[str]) -> bool:
    if node.op == "call_function":
        return node.target in functions
    if node.op == "call_method":
        return node.target in (name, f"{name}_")
    if node.op == "call_module":
        return type(gm.get_submodule(str(node.target))).__name__.lower() in modules
    return False
