"""An exported program as one graph module that owns its parameters, as passes need it."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.export.exported_program import ExportedProgram
from flambeau.fx import Graph, GraphModule, Node
from flambeau.ops import tags

__all__ = ["unlifted"]


def unlifted(model: Any) -> GraphModule:
    """A graph module with the program's parameters, buffers and constants as attributes, at their paths."""
    if isinstance(model, ExportedProgram):
        model = model.module(check_guards=False)
    if not isinstance(model, GraphModule):
        raise TypeError(
            f"[pt2e] expected what torch.export.export(model, args).module() returns, got {type(model).__name__}"
        )
    for node in list(model.graph.nodes):
        if node.op == "call_module" and node.target == "_guards_fn":  # rewritten graphs take other sizes, too
            model.graph.erase_node(node)
            delattr(model, "_guards_fn")
    _write_nothing_in_place(model.graph)
    model.recompile()
    return model


def _write_nothing_in_place(graph: Graph) -> None:
    """Operators that write over what only they read return it instead, so that patterns have one form."""
    views = tags.operators("view")
    for node in graph.nodes:
        name = getattr(node.target, "_full_name", "") if node.op == "call_function" else ""
        base, _, overload = name.partition(".")
        if not base.endswith("_") or "::" in name or not node.args:
            continue
        source = node.args[0]
        is_own = isinstance(source, Node) and source.op == "call_function" and len(source.users) == 1
        if is_own and getattr(source.target, "_full_name", "") not in views and hasattr(fl.ops.aten, base[:-1]):
            node.target = getattr(getattr(fl.ops.aten, base[:-1]), overload or "default")
