"""TorchScript's names. There is no second language here: scripted and traced programs run as the Python they are.

`script` returns the function, class or module it is given. `trace` returns an object of its own that calls the module,
with the same parameters and the same names in its state dict. Archives hold the state and the names of classes; those
of TorchScript are refused. (No `from __future__ import annotations`: that would hide `jit.annotations`.)
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from flambeau._compat.absent import absent_function

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "ScriptFunction", "ScriptModule", "annotate",
    "enable_onednn_fusion", "export", "export_opnames", "fork", "freeze", "fuser", "ignore", "interface",
    "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled", "optimize_for_inference",
    "optimized_execution", "run_frozen_optimizations", "save", "script", "script_if_tracing", "script_method",
    "set_fusion_strategy", "set_module", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")
_get_trace_graph = absent_function("torch.jit._get_trace_graph", "there is no intermediate form of TorchScript")
export_opnames = absent_function("torch.jit.export_opnames", "there is no intermediate form of TorchScript")
CompilationUnit = absent_function("torch.jit.CompilationUnit", "there is no TorchScript compiler")

_python_isinstance = isinstance


class Error(RuntimeError):
    """Raised by TorchScript programs."""


class TracerWarning(Warning):
    """A traced value that would be taken as a constant; never issued, since nothing is frozen."""


# ---------------------------------------------------------------------------------------------- marks


def _same(fn: T) -> T:
    return fn


script_method = export = interface = _overload = _overload_method = unused = script_if_tracing = _same


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    return drop if callable(drop) else _same


def annotate(the_type: Any, the_value: T) -> T:
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type, which may say what containers hold: `List[int]`, `Optional[Dict[str, Tensor]]`."""
    import types
    from typing import Union, get_args, get_origin

    if _python_isinstance(target_type, tuple):
        return any(isinstance(obj, one) for one in target_type)
    origin, inside = get_origin(target_type), get_args(target_type)
    if target_type is None:
        return obj is None
    if origin is None:
        return target_type is Any or _python_isinstance(obj, target_type)
    if origin in (Union, types.UnionType):
        return any(isinstance(obj, one) for one in inside)
    if not _python_isinstance(obj, origin):
        return False
    if origin is tuple:
        if len(inside) == 2 and inside[1] is Ellipsis:
            return all(isinstance(x, inside[0]) for x in obj)
        return len(obj) == len(inside) and all(isinstance(x, one) for x, one in zip(obj, inside))
    if issubclass(origin, dict):
        return all(isinstance(k, inside[0]) and isinstance(v, inside[1]) for k, v in obj.items())
    return all(isinstance(x, inside[0]) for x in obj) if inside else True


class Attribute:
    """A value with the type that TorchScript would give it."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


def is_scripting() -> bool:
    return False


_tracing = 0


def is_tracing() -> bool:
    return _tracing > 0


def set_module(obj: Any, mod: str) -> None:
    if not _python_isinstance(mod, str):
        raise TypeError(f"[set_module] expected a string, got {type(mod).__name__}")
    obj.__module__ = mod


# ---------------------------------------------------------------------------------------------- script and trace


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """The function, class or module itself."""
    from flambeau import nn

    if _python_isinstance(obj, nn.Module):
        from flambeau.jit._archive import mark

        return mark(obj)
    return obj


class ScriptFunction:
    """A traced function: calls the function."""

    functions: "weakref.WeakSet[Any]" = weakref.WeakSet()  # all that were scripted or traced; archives may name these

    def __init__(self, function: Callable[..., Any]) -> None:
        with contextlib.suppress(TypeError):  # not every callable can be referred to weakly
            self.functions.add(function)
        self.__wrapped__ = function
        self.__name__ = self.name = getattr(function, "__name__", "forward")
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        save(self, f, _extra_files)


@contextlib.contextmanager
def _traced() -> Iterator[None]:
    global _tracing
    _tracing += 1
    try:
        yield
    finally:
        _tracing -= 1


def trace(func: Any, example_inputs: Any = None, *, example_kwarg_inputs: Any = None, **options: Any) -> Any:
    """An object that calls the function or module, which is run once with the example to see that it works."""
    from flambeau import Tensor

    args = () if example_inputs is None else example_inputs
    args = (args,) if _python_isinstance(args, (Tensor, dict)) else tuple(args)
    with _traced():
        func(*args, **(example_kwarg_inputs or {}))
    return _wrapper(func)


def trace_module(mod: Any, inputs: dict[str, Any], **options: Any) -> Any:
    """The same for several methods of a module."""
    from flambeau import Tensor

    with _traced():
        for name, args in inputs.items():
            getattr(mod, name)(*((args,) if _python_isinstance(args, Tensor) else args))
    return _wrapper(mod)


def _wrapper(func: Any) -> Any:
    from flambeau import nn

    if not _python_isinstance(func, nn.Module):
        return ScriptFunction(func)
    from flambeau.jit._modules import TopLevelTracedModule

    return TopLevelTracedModule(func)


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced module or function to a file."""
    from flambeau.jit._archive import save

    save(m, f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, **options: Any) -> Any:
    """Read what `save` wrote; the classes have to be there."""
    from flambeau.jit._archive import load

    return load(f, map_location, _extra_files, **options)


# ---------------------------------------------------------------------------------------------- optimisation


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    if mod.training:
        raise RuntimeError("[freeze] expected a module in evaluation mode, got one in training mode")
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    return mod


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None) -> None: ...


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    yield


class strict_fusion:
    """Nothing is fused, nothing fails to be."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


def set_fusion_strategy(strategy: Any) -> list[Any]:
    return []


def enable_onednn_fusion(enabled: bool) -> None: ...


def onednn_fusion_enabled() -> bool:
    return False


# ---------------------------------------------------------------------------------------------- tasks


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A future with the result; the function runs at once."""
    from flambeau.futures import Future

    future: Any = Future()
    future.set_result(func(*args, **kwargs))
    return future


_fork = fork


def wait(future: Any) -> Any:
    return future.wait()


_wait = wait


def __getattr__(name: str) -> Any:
    if name in ("ScriptModule", "RecursiveScriptModule", "TracedModule", "TopLevelTracedModule"):
        from flambeau.jit import _modules

        return getattr(_modules, name)
    if name in ("annotations", "_modules", "_script", "_trace"):
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    if name == "Future":
        from flambeau.futures import Future

        return Future
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
