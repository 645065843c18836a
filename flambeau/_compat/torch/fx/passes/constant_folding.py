"""Constant folding: what depends on no input is computed once and kept as a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter
from flambeau.fx.node import Node
from flambeau.nn.parameter import Parameter


def fold_constants(
    gm: GraphModule, *, fold_parameters: bool = False, keep: Callable[[Node], bool] | None = None
) -> bool:
    """Replace values that depend on no input by buffers `_folded_0`, ...; whether anything changed.

    Parameters may be trained, so what depends on them is left unless fold_parameters is true or they need no gradient.
    Nodes for which `keep` is true, and random and impure ones, are left as well.
    """
    graph = gm.graph
    interpreter = Interpreter(gm, garbage_collect_values=False)
    values: dict[Node, Any] = {}
    foldable: set[Node] = set()
    written = _written_attributes(gm)
    for node in graph.nodes:
        if node.op == "get_attr":
            value = interpreter.fetch_attr(str(node.target))
            trained = isinstance(value, Parameter) and value.requires_grad and not fold_parameters
            if isinstance(value, flambeau.Tensor) and not trained and str(node.target) not in written:
                values[node] = value
            continue
        if node.op not in ("call_function", "call_method") or node.is_impure() or (keep is not None and keep(node)):
            continue
        # A call without nodes among its arguments makes something new, as `zeros(3)`: it is folded too.
        if all(used in values for used in node._input_nodes):
            interpreter.env = values
            with flambeau.no_grad():
                values[node] = interpreter.run_node(node)
            foldable.add(node)
    changed = False
    for node in list(graph.nodes):
        value = values.get(node)
        if node not in foldable or not isinstance(value, flambeau.Tensor):
            continue
        if all(user in foldable for user in node.users):
            continue  # only needed on the way
        name = _free_name(gm)
        gm.register_buffer(name, value.detach())
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta.update(node.meta)
        node.replace_all_uses_with(constant)
        changed = True
    if changed:
        graph.eliminate_dead_code()
        gm.delete_all_unused_submodules()
        gm.recompile()
    return changed


def _written_attributes(gm: GraphModule) -> set[str]:
    """Paths of attributes that the graph writes in place."""
    written: set[str] = set()
    for node in gm.graph.nodes:
        if node.op in ("call_function", "call_method") and node.is_impure(impure_random=False):
            written.update(str(used.target) for used in node._input_nodes if used.op == "get_attr")
    return written


def _free_name(gm: GraphModule) -> str:
    number = 0
    while hasattr(gm, f"_folded_{number}"):
        number += 1
    return f"_folded_{number}"
