"""Switches of capture that few programs use: for one call, one function or one tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from flambeau._compat import absent
from flambeau._dynamo import allow_in_graph, config, disable, disallow_in_graph, mark_dynamic, mark_static
from flambeau._dynamo.backends import lookup_backend

patch_dynamo_config = config.patch
mark_unbacked = mark_dynamic


class error_on_graph_break(contextlib.ContextDecorator):
    """Inside, graph breaks are errors, as with fullgraph=True, or are not. In plain Python it means nothing."""

    def __init__(self, error_on_graph_break: bool) -> None:
        self.error_on_graph_break = error_on_graph_break

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


__all__ = [
    "disable", "disable_nested_graph_breaks", "dont_skip_tracing", "error_on_graph_break", "forbid_in_graph", "is_dynamo_disable_recursive",
    "lookup_backend", "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "nonstrict_trace", "optimize_assert",
    "override_optimization_hint", "patch_dynamo_config", "reset_recompile_user_contexts", "set_recursion_limit", "set_stance",
    "skip_frame", "step_unsupported", "substitute_in_graph",
]  # fmt: skip


def set_stance(stance: str = "default", **options: Any) -> Any:
    from flambeau import compiler

    return compiler.set_stance(stance, **options)


def substitute_in_graph(original_fn: Any, **options: Any) -> Any:
    from flambeau import compiler

    return compiler.substitute_in_graph(original_fn, **options)


def optimize_assert(backend: Any = "inductor", **options: Any) -> Callable[[Any], Any]:
    """optimize() that refuses graph breaks."""
    from flambeau._dynamo import optimize

    return optimize(backend, **{**options, "nopython": True})


def is_dynamo_disable_recursive(method: Any) -> bool | None:
    """Whether disable() of a function concerns what it calls too; None for a function that is not disabled."""
    return getattr(method, "__dict__", {}).get("_dynamo_disable_recursive")


def forbid_in_graph(fn: Any) -> Any:
    return disallow_in_graph(fn)


def nonstrict_trace(traceable_fn: Any) -> Any:
    """The function becomes one node of the graph."""
    return allow_in_graph(traceable_fn)


def _unchanged(fn: Any = None) -> Any:
    """A decorator, with or without arguments, for what is always the case here."""
    return (lambda function: function) if fn is None else fn


dont_skip_tracing = disable_nested_graph_breaks = _unchanged


def skip_frame(msg: str = "") -> None:
    """Runs the rest of the function in plain Python; outside of a capture it does nothing."""


def step_unsupported(msg: str = "") -> None: ...


def mark_static_address(t: Any, guard: bool = False) -> None:
    """The tensor stays where it is. Nothing is compiled for an address here."""
    if not hasattr(t, "data_ptr"):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")


def override_optimization_hint(x: Any, val: int) -> None: ...


def reset_recompile_user_contexts() -> None: ...


def set_recursion_limit(limit: int) -> None:
    """How deep calls may be captured."""
    if limit < 1:
        raise ValueError(f"[set_recursion_limit] expected a positive limit, got {limit}")
    config.max_depth = limit


__getattr__ = absent.names_of(__name__)
