"""Capture: Python bytecode in, graphs and guards out, plain Python wherever it must be.

The pieces, in the order a call meets them: the native `GuardedFunction` evaluates guards and calls artifacts; on a miss
`compile.py` captures the function with `interpreter.py` (frames and instructions), `calls.py` and `attributes.py` (what
calls and attributes mean), `trace.py` (values from outside, pending side effects, the graph); `rebuild.py` writes the
artifact, `break_code.py` and `resume.py` continue after a graph break; `guards.py` describes the guards to the native evaluator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from flambeau._dynamo import config

__all__ = [
    "allow_in_graph", "assume_constant_result", "config", "disable", "disallow_in_graph", "explain", "graph_break", "is_compiling",
    "list_backends", "mark_dynamic", "mark_static", "maybe_mark_dynamic", "optimize", "register_backend", "reset", "run",
]  # fmt: skip


_ELSEWHERE = {"OptimizedModule": "eval_frame", "is_dynamo_supported": "eval_frame"} | dict.fromkeys(
    "disable_nested_graph_breaks dont_skip_tracing error_on_graph_break forbid_in_graph is_dynamo_disable_recursive lookup_backend "
    "mark_static_address mark_unbacked nonstrict_trace optimize_assert override_optimization_hint patch_dynamo_config "
    "reset_recompile_user_contexts set_recursion_limit set_stance skip_frame step_unsupported substitute_in_graph".split(),
    "decorators",
)


def is_compiling() -> bool:
    """Whether the code is being captured. Outside a capture it is not."""
    return False


def graph_break(msg: str = "") -> None:
    """Breaks the graph here; does nothing in plain Python."""


def reset() -> None:
    """Forgets everything that was compiled."""
    if "flambeau._dynamo.compile" in sys.modules:
        from flambeau._dynamo import compile

        compile.reset()
        from flambeau._inductor import failures

        failures.forget()
        compile.counters.clear()


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """Marks a function to run in plain Python, with everything it calls; a decorator, with or without arguments."""
    if fn is None:
        return lambda function: disable(function, recursive, reason=reason, wrapping=wrapping)
    import functools

    from flambeau import _C

    if isinstance(fn, type) or not callable(fn):
        return fn
    module = _module_class()
    if module is not None and isinstance(fn, module):
        fn.forward = disable(fn.forward)
        return fn
    target = getattr(fn, "_dynamo_function", fn)

    if recursive:

        def disabled(*args: Any, **kwargs: Any) -> Any:
            _C._disable_compiled(1)
            try:
                return target(*args, **kwargs)
            finally:
                _C._disable_compiled(-1)

    else:  # what it calls is offered to the frame hook
        _skip_code(target)

        def disabled(*args: Any, **kwargs: Any) -> Any:
            return _C._call_hooked(None, target, *args, **kwargs)

    functools.update_wrapper(disabled, target)
    disabled.__dict__["_dynamo_disable"] = True
    disabled.__dict__["_dynamo_disable_recursive"] = recursive
    return disabled


def _skip_code(target: Any) -> None:
    from flambeau._dynamo.eval_frame import skip_code

    code = getattr(target, "__code__", None)
    if code is not None:
        skip_code(code)


def _module_class() -> Any:
    loaded = sys.modules.get("flambeau.nn.modules.module")
    return None if loaded is None else loaded.Module


def allow_in_graph(fn: Any) -> Any:
    """Marks a function to become one node of the graph: it must work on tensors alone and have no effects."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    if not callable(fn):
        raise AssertionError(f"[allow_in_graph] expected a function, got {type(fn).__name__}")
    from flambeau import _C

    if not isinstance(fn, _C.Function):  # operators are nodes as they are
        fn._dynamo_allow_in_graph = True
    return fn


def disallow_in_graph(fn: Any) -> Any:
    """Marks a function to break the graph."""
    if isinstance(fn, (list, tuple)):
        return [disallow_in_graph(f) for f in fn]
    fn.__dict__.pop("_dynamo_allow_in_graph", None)
    fn.__dict__["_dynamo_disable"] = True
    return fn


def assume_constant_result(fn: Any) -> Any:
    fn.__dict__["_dynamo_constant_result"] = True
    return fn


def _mark(tensor: Any, index: Any, name: str, value: Any) -> None:
    if isinstance(index, (list, tuple)):
        for i in index:
            _mark(tensor, i, name, value)
        return
    marks = tensor.__dict__.setdefault(name, {})
    marks[index] = value


def mark_dynamic(
    t: Any, index: Any, *, hint_override: Any = None, min: Any = None, max: Any = None, **ignored: Any
) -> None:
    """Asks for one artifact for all sizes of a dimension."""
    _mark(t, index, "_dynamo_dynamic", (min, max))


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Asks for one artifact for all sizes of a dimension, if the program allows it."""
    _mark(t, index, "_dynamo_weak_dynamic", True)


def mark_static(t: Any, index: Any = None) -> None:
    """Asks for an artifact of its own for each size of a dimension."""
    if isinstance(t, type):
        return
    _mark(t, range(t.ndim) if index is None else index, "_dynamo_static", True)


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    from flambeau._dynamo.backends import list_backends

    return list_backends(exclude_tags)


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    from flambeau._dynamo.backends import register_backend

    return register_backend(compiler_fn, name, tags)


def optimize(
    backend: Any = "inductor", *, nopython: bool = False, dynamic: bool | None = None, **ignored: Any
) -> Callable[[Any], Any]:
    from flambeau.compiler import compile

    return lambda model: compile(model, backend=backend, fullgraph=nopython, dynamic=dynamic)


def run(fn: Any = None) -> Any:
    """The function with the artifacts it has: nothing is compiled for it any more, it runs in plain Python instead."""
    if fn is None:
        return run
    import functools

    from flambeau.compiler import set_stance

    @functools.wraps(fn)
    def prior(*args: Any, **kwargs: Any) -> Any:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return prior


def explain(f: Any, *extra_args: Any, **extra_kwargs: Any) -> Any:
    """explain(fn)(*args): graphs, operations, breaks, guards and times of a capture."""
    from flambeau._dynamo.explanation import explain as run_explain

    def inner(*args: Any, **kwargs: Any) -> Any:
        return run_explain(f, args, kwargs)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner


def __getattr__(name: str) -> Any:
    import importlib

    if name == "export":
        from flambeau._dynamo.exporting import export

        return export
    if name in ("compiled_autograd", "decorators", "eval_frame", "exc", "testing"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
