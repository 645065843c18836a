"""TorchScript: functions and modules compiled from their source to typed graphs, or recorded by tracing, and archives of them.

`script` reads the source, `trace` records the operators of a run; both yield objects that run without the Python they came from, and that `save` writes in
PyTorch's format. The parts are loaded when they are first used. (No `from __future__ import annotations`: that would hide `jit.annotations`.)
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "ScriptFunction", "ScriptModule", "ScriptWarning", "annotate",
    "enable_onednn_fusion", "export", "export_opnames", "fork", "freeze", "fuser", "ignore", "interface",
    "is_scripting", "is_tracing", "isinstance", "jit_module_from_flatbuffer", "last_executed_optimized_graph", "load", "onednn_fusion_enabled", "optimize_for_inference",
    "optimized_execution", "run_frozen_optimizations", "save", "save_jit_module_to_flatbuffer", "script", "script_if_tracing", "script_method",
    "set_fusion_strategy", "set_module", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")
_python_isinstance = isinstance
_tracing = 0  # how many traces are being recorded


class TracerWarning(Warning):
    """A value of the example run that a trace has taken as a constant."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        import warnings

        warnings.filterwarnings("ignore", category=TracerWarning, module="torch.(?!jit)")


class ScriptWarning(Warning):
    """Something in a script that may not mean what it seems to."""


# ---------------------------------------------------------------------------------------------- marks


def _marked(function: Any, kind: str) -> Any:
    target = getattr(function, "fget", None) or getattr(function, "__func__", None) or function
    target._torchscript_modifier = kind
    return function


def export(fn: T) -> T:
    """Compile the method even if nothing calls it."""
    return _marked(fn, "export")


def unused(fn: T) -> T:
    """Leave the function out; a call raises when it runs."""
    return _marked(fn, "unused")


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Leave the function in Python; with `drop` a call raises after export."""
    if callable(drop):
        return _marked(drop, "ignore")
    if not _python_isinstance(drop, bool):
        raise RuntimeError(f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}")
    kind = "ignore_drop" if drop or kwargs.get("drop_on_export") else "ignore"
    return lambda fn: _marked(fn, kind)


def _overload(func: T) -> T:
    from flambeau.jit._frontend.callables import add_overload

    return add_overload(func)


_overload_method = _overload


def script_method(fn: Any) -> Any:
    """A method of a ScriptModule's subclass that is compiled."""
    from flambeau.jit._modules import ScriptMethodStub

    return ScriptMethodStub(fn)


def interface(obj: Any) -> Any:
    """Declare a class as an interface: the methods that a module or class must have."""
    from flambeau.jit._frontend.classes import make_interface

    if not _python_isinstance(obj, type):
        raise RuntimeError("interface must be applied to a class")
    obj.__torch_script_interface__ = make_interface(obj)
    return obj


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
        if target_type is Any:
            return True
        return _python_isinstance(obj, target_type)
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
    """A value with the type that TorchScript is to give it."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type

    def __repr__(self) -> str:
        return f"Attribute(value={self.value!r}, type={self.type!r})"


def _unwrap_optional(x: Any) -> Any:
    assert x is not None, "Unwrapping null optional"
    return x


def is_scripting() -> bool:
    return False


def is_tracing() -> bool:
    return _tracing > 0


def set_module(obj: Any, mod: str) -> None:
    if not _python_isinstance(mod, str):
        raise TypeError(f"[set_module] expected a string, got {type(mod).__name__}")
    obj.__module__ = mod


# ---------------------------------------------------------------------------------------------- script and trace


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Compile a function, class or module from its source."""
    from flambeau.jit._script import script_object

    return script_object(obj, _rcb, example_inputs)


def script_if_tracing(fn: Any) -> Any:
    """Compile a function when a trace reaches it; call it as it is otherwise."""
    import functools

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        return script(wrapper.__original_fn)(*args, **kwargs)

    wrapper.__original_fn = fn
    wrapper.__script_if_tracing_wrapper = True
    return wrapper


_script_if_tracing = script_if_tracing  # the name that libraries import


def trace(
    func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None, check_tolerance: float = 1e-5,
    strict: bool = True, _force_outplace: bool = False, _module_class: Any = None, _compilation_unit: Any = None, example_kwarg_inputs: Any = None, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """Record the operators that a function or module runs on examples."""
    from flambeau.jit._trace import trace

    return trace(func, example_inputs, example_kwarg_inputs, check_trace, check_inputs, check_tolerance, strict)


def trace_module(
    mod: Any, inputs: dict[str, Any], optimize: Any = None, check_trace: bool = True, check_inputs: Any = None, check_tolerance: float = 1e-5,
    strict: bool = True, _force_outplace: bool = False, _module_class: Any = None, _compilation_unit: Any = None, example_inputs_is_kwarg: bool = False, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """Record several methods of a module, each on its own examples."""
    from flambeau.jit._trace import trace_module

    return trace_module(mod, inputs, check_trace, check_inputs, check_tolerance, strict, example_inputs_is_kwarg)


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced module or function to a file."""
    from flambeau.jit._archive import save

    save(m, f, _extra_files)


def load(
    f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, _restore_shapes: bool = False
) -> Any:
    """Read what `save` wrote, here or in PyTorch."""
    from flambeau.jit._archive import load

    return load(f, map_location, _extra_files)


# ---------------------------------------------------------------------------------------------- optimisation


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The module with its parameters and attributes as constants of the code."""
    from flambeau.jit._freeze import freeze

    return freeze(mod, preserved_attrs, optimize_numerics)


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    from flambeau.jit._freeze import optimize_for_inference

    return optimize_for_inference(mod, other_methods)


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None) -> None:
    from flambeau.jit._freeze import run_frozen_optimizations

    run_frozen_optimizations(mod, optimize_numerics, preserved_methods)


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Whether programs that have run a few times are compiled."""
    global _optimize
    before, _optimize = _optimize, should_optimize
    try:
        yield
    finally:
        _optimize = before


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    if name not in ("fuser0", "fuser1", "fuser2", "fuser3", "none"):
        raise Exception(f"unrecognized fuser option (name: {name})")
    yield


class strict_fusion:
    """Accepted; nothing is required to be fused."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


_optimize = True
_strategy: list[tuple[str, int]] = [("STATIC", 2), ("DYNAMIC", 10)]


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Accepted; returns the strategy set before."""
    for kind, _ in strategy:
        if kind not in ("STATIC", "DYNAMIC"):
            raise RuntimeError(f"FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: {kind}")
    before = list(_strategy)
    _strategy[:] = strategy
    return before


_onednn = [False]


def enable_onednn_fusion(enabled: bool) -> None:
    _onednn[0] = enabled


def onednn_fusion_enabled() -> bool:
    return _onednn[0]


def last_executed_optimized_graph() -> Any:
    from flambeau.jit._script import last_graph

    return last_graph()


def export_opnames(m: Any) -> list[str]:
    """Names of the operators that a module uses."""
    from flambeau.jit._script import operator_names

    return operator_names(m)


# ---------------------------------------------------------------------------------------------- tasks


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A future with the result; the function runs at once."""
    from flambeau.futures import Future

    future: Any = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


_fork = fork


def wait(future: Any) -> Any:
    return future.wait()


_wait = wait
_IN_SCRIPT = {"CompilationUnit", "Error", "ScriptFunction", "create_script_dict", "create_script_list"}
_SUBMODULES = {
    "annotations", "frontend", "mobile", "quantized", "supported_ops", "unsupported_tensor_ops", "_modules", "_script", "_trace", "_recursive", "_state", "_builtins", "_freeze",
    "_serialization", "_check", "_decompositions", "_async", "_await", "_fuser", "_ir_utils", "_monkeytype_config", "_pickle", "_shape_functions", "_logging", "_decomposition_utils", "_dataclass_impls", "_passes",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name.startswith("_awaitable"):
        from flambeau.jit import _await

        return getattr(_await, name)
    if name in ("ScriptModule", "RecursiveScriptModule", "TracedModule", "TopLevelTracedModule"):
        from flambeau.jit import _modules

        return getattr(_modules, name)
    if name in _IN_SCRIPT:
        from flambeau.jit import _script

        return getattr(_script, name)
    if name == "_get_trace_graph":
        from flambeau.jit._trace import get_trace_graph

        return get_trace_graph
    if name == "TracingCheckError":
        from flambeau.jit._trace import TracingCheckError

        return TracingCheckError
    if name in _SUBMODULES:
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError:
            pass
    if name == "Future":
        from flambeau.futures import Future

        return Future
    from flambeau._compat import absent

    return absent.attribute(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
