"""The switches of compilation, and `compile` itself, over flambeau._dynamo, which is imported on first use."""

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
    """A function or module that runs captured graphs; a decorator when it is called with options only."""
    if mode is not None and options is not None:
        raise RuntimeError("[compile] expected mode or options, got both")
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise RuntimeError(f"[compile] expected a function or module, got {type(model).__name__}")
    if disable:
        return model
    from flambeau._dynamo.compile import Settings

    if backend == "inductor" and (mode is not None or options):
        from flambeau._inductor import config

        config.resolve(mode, options)  # mistakes show here, not at the first call
    extra = {name: value for name, value in (("mode", mode), ("options", options)) if value is not None}
    return compile_with(model, Settings(backend, fullgraph, dynamic, extra))


def compile_with(model: Any, settings: Any) -> Any:
    """compile() with its options in one object."""
    import types

    from flambeau._dynamo.compile import compile_function
    from flambeau.nn.modules.module import Module

    model = getattr(model, "_dynamo_function", model)
    if isinstance(model, Module):
        return _compile_module(model, settings)
    if isinstance(model, types.MethodType):
        if isinstance(model.__self__, Module) and model.__func__ is Module._call_impl:
            return compile_function(_caller(model), settings)
        if isinstance(model.__func__, types.FunctionType):
            return types.MethodType(compile_function(model.__func__, settings), model.__self__)
        return model
    if isinstance(model, types.FunctionType):
        return compile_function(model, settings)
    if isinstance(model, type) or not isinstance(
        vars(type(model)).get("__call__", type(model).__call__), types.FunctionType
    ):
        return model  # native code: there is nothing to capture
    return compile_function(_caller(model), settings)


def _caller(model: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return call


def _compile_module(model: Any, settings: Any) -> Any:
    """A second object on the same state, of a class whose calls are compiled: names in state dicts stay as they are."""
    from flambeau._dynamo.compile import compile_function

    original = getattr(model, "_orig_mod", model)
    cls = type(original)
    compiled = compile_function(_caller(original), settings)
    made = type(
        "OptimizedModule",
        (cls,),
        {
            "__call__": staticmethod(compiled),
            "__module__": __name__,
            "_orig_mod": original,
            "_compiled_call": compiled,
            "__reduce_ex__": lambda self, protocol: (compile, (original,)),
            "__deepcopy__": _copy_compiled,
        },
    )
    wrapper = made.__new__(made)
    object.__setattr__(wrapper, "__dict__", original.__dict__)
    return wrapper


def _copy_compiled(self: Any, memo: Any) -> Any:
    import copy

    return compile(copy.deepcopy(self._orig_mod, memo))


def _mark(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that leaves the function as it is."""
    return (lambda given: given) if function is None or not callable(function) else function


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    from flambeau import _dynamo

    return _dynamo.disable(fn, recursive, reason=reason)


def allow_in_graph(fn: Any) -> Any:
    from flambeau import _dynamo

    return _dynamo.allow_in_graph(fn)


def assume_constant_result(fn: Any) -> Any:
    from flambeau import _dynamo

    return _dynamo.assume_constant_result(fn)


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


def reset() -> None:
    """Forgets everything that was compiled."""
    from flambeau import _dynamo

    _dynamo.reset()


def cudagraph_mark_step_begin() -> None: ...


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    from flambeau import _dynamo

    return _dynamo.list_backends(exclude_tags)


class set_stance:
    """How compiled functions are run from now on; a context manager and a decorator too."""

    def __init__(self, stance: str = "default", **options: Any) -> None:
        from flambeau import _C

        self.stance = stance
        self._change = _C._disable_compiled
        self._amount = 1 if stance == "force_eager" else 0
        self._change(self._amount)

    def __call__(self, fn: Any) -> Any:
        import functools

        self._change(-self._amount)

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._change(self._amount)
            try:
                return fn(*args, **kwargs)
            finally:
                self._change(-self._amount)

        return wrapper

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self._change(-self._amount)


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
