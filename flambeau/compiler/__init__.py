"""The switches of compilation, and `compile` itself.

There is no compiler yet: `compile` returns what it is given, and the marks that steer a compiler change nothing. What a
program may ask (`is_compiling`) is answered truthfully.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "compile",
    "allow_in_graph",
    "assume_constant_result",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "load_compiled_function",
    "nested_compile_region",
    "reset",
    "save_cache_artifacts",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
]


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The function or module itself; a decorator when it is called with options only."""
    if mode is not None and options is not None:
        raise RuntimeError("[compile] expected mode or options, got both")
    if model is None:
        return lambda function: function
    if not callable(model):
        raise RuntimeError(f"[compile] expected a function or module, got {type(model).__name__}")
    return model


def _mark(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that leaves the function as it is."""
    return (lambda given: given) if function is None or not callable(function) else function


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    return _mark(fn)


def allow_in_graph(fn: Any) -> Any:
    return fn


def assume_constant_result(fn: Any) -> Any:
    return fn


def nested_compile_region(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    return _mark(fn)


def substitute_in_graph(original_fn: Any, **options: Any) -> Any:
    return lambda substitute: substitute


def is_compiling() -> bool:
    return False


def is_dynamo_compiling() -> bool:
    return False


def is_exporting() -> bool:
    return False


def reset() -> None: ...


def cudagraph_mark_step_begin() -> None: ...


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    return ["inductor"]


class set_stance:
    """How compiled functions are run from now on; a context manager and a decorator too."""

    def __init__(self, stance: str = "default", **options: Any) -> None:
        self.stance = stance

    def __call__(self, fn: Any) -> Any:
        return fn

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def set_enable_guard_collectives(enabled: bool) -> bool:
    return False


def _keep(entries: Any) -> list[bool]:
    return [False for _ in entries]


skip_guard_on_inbuilt_nn_modules_unsafe = skip_guard_on_all_nn_modules_unsafe = _keep
skip_guard_on_globals_unsafe = skip_all_guards_unsafe = keep_tensor_guards_unsafe = _keep


def save_cache_artifacts() -> None:
    """Nothing was compiled, nothing is to be saved."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None: ...


def load_compiled_function(file: Any, **options: Any) -> Any:
    raise NotImplementedError("[load_compiled_function] expected a compiler, which is not written yet")
