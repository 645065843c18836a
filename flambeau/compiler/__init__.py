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
    "keep_portable_guards_unsafe",
    "get_default_backend",
    "set_default_backend",
    "wrap_numpy",
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
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """A function or module that runs captured graphs; a decorator when it is called with options only.

    >>> @flambeau.compile
    ... def f(x):
    ...     return x.sin() + 1
    >>> f(flambeau.zeros(2))
    tensor([1., 1.])
    """
    if mode is not None and options is not None:
        raise RuntimeError("[compile] expected mode or options, got both")
    if model is None:
        return lambda function: compile(
            function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if not callable(model):
        raise AssertionError(f"[compile] expected a function or module, got {type(model).__name__}")
    if disable:
        return model
    from flambeau._dynamo.compile import Settings

    backend = _default_backend if backend is None else backend
    if backend == "inductor" and (mode is not None or options):
        from flambeau._inductor import config

        own = {name: value for name, value in (options or {}).items() if name != "guard_filter_fn"}
        config.resolve(mode, own)  # mistakes show here, not at the first call
    extra = {name: value for name, value in (("mode", mode), ("options", options)) if value is not None}
    return compile_with(model, Settings(backend, fullgraph, dynamic, extra))


def compile_with(model: Any, settings: Any) -> Any:
    """compile() with its options in one object."""
    import types

    from flambeau._dynamo.compile import guarded_function
    from flambeau.nn.modules.module import Module

    model = getattr(model, "_dynamo_function", model)
    if isinstance(model, Module):
        return _compile_module(model, settings)
    if isinstance(model, types.MethodType):
        if isinstance(model.__self__, Module) and model.__func__ is Module._call_impl:
            return guarded_function(_caller(model), settings)
        if isinstance(model.__func__, types.FunctionType):
            return types.MethodType(guarded_function(model.__func__, settings), model.__self__)
        return model
    if isinstance(model, types.FunctionType):
        return guarded_function(model, settings)
    if isinstance(model, type) or not isinstance(
        vars(type(model)).get("__call__", type(model).__call__), types.FunctionType
    ):
        return model  # native code: there is nothing to capture
    return guarded_function(_caller(model), settings)


def _caller(model: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return call


def _compile_module(model: Any, settings: Any) -> Any:
    """A second object on the same state, of a class whose calls are compiled: names in state dicts stay as they are."""
    from flambeau._dynamo.compile import guarded_function

    original = getattr(model, "_orig_mod", model)
    cls = type(original)
    compiled = guarded_function(_caller(original), settings)
    module_class = type(
        "OptimizedModule",
        (cls,),
        {
            "__call__": staticmethod(compiled),
            "__module__": __name__,
            "_orig_mod": original,
            "_compiled_call": compiled,
            "__reduce_ex__": lambda self, protocol: (compile, (original,)),
            "__deepcopy__": _copy_compiled,
            "load_state_dict": _load_compiled,
        },
    )
    wrapper = module_class.__new__(module_class)  # type: ignore[call-overload]
    object.__setattr__(wrapper, "__dict__", original.__dict__)
    return wrapper


def _copy_compiled(self: Any, memo: Any) -> Any:
    import copy

    return compile(copy.deepcopy(self._orig_mod, memo))


def _load_compiled(self: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
    """Also takes the names that PyTorch's compiled modules have in their state dicts."""
    prefix = "_orig_mod."
    if any(isinstance(key, str) and key.startswith(prefix) for key in state_dict):
        original, metadata = state_dict, getattr(state_dict, "_metadata", None)
        state_dict = type(original)((key.removeprefix(prefix), value) for key, value in original.items())
        if metadata is not None:
            state_dict._metadata = {key.removeprefix(prefix): value for key, value in metadata.items()}
    return self._orig_mod.load_state_dict(state_dict, *args, **kwargs)


def _mark(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A decorator, with or without arguments, that leaves the function as it is."""
    return (lambda function: function) if function is None or not callable(function) else function


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    from flambeau import _dynamo

    return _dynamo.disable(fn, recursive, reason=reason)


_disable_dynamo = disable


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


STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile")


class set_stance:
    """How compiled functions are run from now on; a context manager and a decorator too."""

    def __init__(self, stance: str = "default", **options: Any) -> None:
        if stance not in STANCES:
            raise RuntimeError(f"[set_stance] expected one of {STANCES}, got {stance!r}: invalid torch.compile stance")
        self.stance = stance
        self._before: list[str] = []
        self._set()

    def _set(self) -> None:
        from flambeau import _C
        from flambeau._dynamo import config

        self._before.append(config.stance)
        _C._disable_compiled((self.stance == "force_eager") - (config.stance == "force_eager"))
        config.stance = self.stance

    def _restore(self) -> None:
        from flambeau import _C
        from flambeau._dynamo import config

        before = self._before.pop()
        _C._disable_compiled((before == "force_eager") - (config.stance == "force_eager"))
        config.stance = before

    def __call__(self, fn: Any) -> Any:
        import functools

        self._restore()

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._set()
            try:
                return fn(*args, **kwargs)
            finally:
                self._restore()

        return wrapper

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None:
        self._restore()


def set_enable_guard_collectives(enabled: bool) -> bool:
    return False


# Functions for `options={"guard_filter_fn": ...}`: which facts about values are guarded. The program promises the others.


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """Guards nothing that belongs to a layer of the library."""
    return [not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """Guards nothing that belongs to a module."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """Guards tensors alone; parameters only when asked."""
    return [
        entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not entry.orig_guard.source.is_parameter)
        for entry in guard_entries
    ]


def skip_guard_on_globals_unsafe(guard_entries: Any) -> list[bool]:
    """Guards no global variables."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries: Any) -> list[bool]:
    """Guards nothing."""
    return [False for _ in guard_entries]


keep_portable_guards_unsafe = keep_tensor_guards_unsafe
_default_backend: str | Callable[..., Any] = "inductor"


def get_default_backend() -> str | Callable[..., Any]:
    """What `compile` uses when it is not given a backend."""
    return _default_backend


def set_default_backend(backend: str | Callable[..., Any]) -> None:
    global _default_backend
    from flambeau._dynamo.backends import lookup_backend

    lookup_backend(backend)
    _default_backend = backend


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays as a function of tensors."""
    import functools

    import flambeau as fl

    def each(value: Any, test: Any, change: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(each(v, test, change) for v in value)
        if isinstance(value, dict):
            return {k: each(v, test, change) for k, v in value.items()}
        return change(value) if test(value) else value

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = each((args, kwargs), lambda v: isinstance(v, fl.Tensor), lambda v: v.numpy())
        return each(fn(*args, **kwargs), lambda v: type(v).__module__ == "numpy", fl.as_tensor)

    return wrapped


def __getattr__(name: str) -> Any:
    if name == "config":
        import importlib

        return importlib.import_module(f"{__name__}.config")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def save_cache_artifacts() -> None:
    """None: kernels lie in the cache on disk (`flambeau cache show`), which can be copied."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None: ...


def load_compiled_function(file: Any, **options: Any) -> Any:
    raise NotImplementedError(
        "[load_compiled_function] expected functions that are compiled where they run, got a file of one"
    )
