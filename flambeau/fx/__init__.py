"""fx: functions as graphs, to look at, rewrite and run.

`symbolic_trace` turns a module or function into a `GraphModule`; its `graph` is a list of `Node`s that passes change;
`recompile()` makes the change effective. `Interpreter` and `Transformer` run graphs step by step, `replace_pattern`
rewrites subgraphs, `passes` holds the rest of the toolkit.
"""

from __future__ import annotations

from typing import Any

from flambeau.fx._symbolic_trace import PH, ProxyableClassMeta, Tracer, is_fx_tracing, symbolic_trace, wrap
from flambeau.fx.graph import CodeGen, Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.immutable_collections import immutable_dict, immutable_list
from flambeau.fx.interpreter import Interpreter, Transformer
from flambeau.fx.node import Node, has_side_effect, map_arg
from flambeau.fx.proxy import Proxy, TraceError

__all__ = [
    "symbolic_trace", "Tracer", "wrap", "Graph", "GraphModule", "Interpreter", "Transformer", "Node", "Proxy",
    "replace_pattern", "has_side_effect", "map_arg", "CodeGen", "PH", "ProxyableClassMeta", "TraceError",
    "immutable_dict", "immutable_list", "is_fx_tracing",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "replace_pattern":
        from flambeau.fx.subgraph_rewriter import replace_pattern

        return replace_pattern
    if name in (
        "passes",
        "experimental",
        "subgraph_rewriter",
        "operator_schemas",
        "verifier",
        "tensor_type",
        "annotate",
    ):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
