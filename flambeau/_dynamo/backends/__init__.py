"""The registry of backends: callables that take a captured graph and example inputs and return what runs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Backend = Callable[..., Callable[..., Any]]
_BACKENDS: dict[str, Backend] = {}


class InvalidBackend(RuntimeError):
    pass


def register_backend(function: Any = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Registers a backend under its name; a decorator, with or without arguments."""
    if function is None:
        return lambda backend_function: register_backend(backend_function, name, tags)
    _BACKENDS[name or function.__name__] = function
    return function


def register_debug_backend(function: Any = None, name: str | None = None) -> Any:
    """Registers a backend that is not among those listed by default."""
    return register_backend(function, name, tags=("debug",))


def list_backends(exclude_tags: Sequence[str] = ("debug", "experimental")) -> list[str]:
    hidden = (
        {name for name in _BACKENDS if name == "eager" or name.startswith("aot_eager")}
        if "debug" in (exclude_tags or ())
        else set()
    )
    return sorted(name for name in _BACKENDS if name not in hidden)


def lookup_backend(backend: Any) -> Backend:
    if callable(backend):
        return backend  # type: ignore[no-any-return]
    if backend not in _BACKENDS:
        raise InvalidBackend(f"[compile] expected one of {sorted(_BACKENDS)} or a callable as backend, got {backend!r}")
    return _BACKENDS[backend]


@register_backend
def eager(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Runs the graph operator by operator."""
    return gm.forward  # type: ignore[no-any-return]


@register_backend
def aot_eager(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """Forward and backward recorded ahead of time, then run operator by operator."""
    from flambeau._inductor.compile_fx import compile_fx

    return compile_fx(gm, example_inputs, fuse=False)


# Partitioners of PyTorch to choose from; there is one here.
register_backend(aot_eager, name="aot_eager_decomp_partition")
register_backend(aot_eager, name="aot_eager_default_partitioner")


@register_backend
def inductor(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
    """The fusing compiler."""
    from flambeau._inductor.compile_fx import compile_fx

    runner: Callable[..., Any] = compile_fx(gm, example_inputs, **kwargs)
    return runner
