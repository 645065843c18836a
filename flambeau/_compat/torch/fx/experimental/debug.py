"""Stopping in the debugger at the first line of a graph module's code."""

from __future__ import annotations

from flambeau.fx.graph_module import GraphModule

__all__ = ["set_trace"]


def set_trace(gm: GraphModule) -> GraphModule:
    """A breakpoint at the start of forward; tracebacks and the debugger show the printed code."""

    def with_breakpoint(body: list[str]) -> list[str]:
        return ["import pdb; pdb.set_trace()\n", *body]

    with gm.graph.on_generate_code(
        lambda current: lambda body: with_breakpoint(body if current is None else current(body))
    ):
        gm.recompile()
    return gm
