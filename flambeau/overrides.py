"""`__torch_function__`: how classes and modes take over the library's functions.

A function asks `has_torch_function` whether one of its arguments, or an active mode, wants to handle the call, and if
so passes it to `handle_torch_function`. Native functions make the same decision in native code; this module serves the
functions written in Python and those of users.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import flambeau
from flambeau import _C
from flambeau._tensor import beside_torch

__all__ = [
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "resolve_name",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "wrap_torch_function",
    "TorchFunctionMode",
    "BaseTorchFunctionMode",
]


# ---------------------------------------------------------------------------------------------- dispatch by arguments


# Whether a mode is active or one of the arguments overrides functions: then call `handle_torch_function`.
has_torch_function = _C._has_torch_function
has_torch_function_unary = _C._has_torch_function_unary
has_torch_function_variadic = _C._has_torch_function_variadic


def _overrides(cls: type) -> bool:
    """Whether a class has a `__torch_function__` in force."""
    handler = getattr(cls, "__torch_function__", _C._disabled_torch_function_impl)
    return handler is not _C._disabled_torch_function_impl


def _get_overloaded_args(relevant_args: Iterable[Any], get_type: Callable[[Any], type] = type) -> list[Any]:
    """One argument of each overriding type, in the order to try them: left to right, subclasses before superclasses."""
    if not _C._is_torch_function_enabled():
        return []
    chosen: list[Any] = []
    seen: set[type] = set()
    for argument in relevant_args:
        cls = get_type(argument)
        if cls in seen or not _overrides(cls):
            continue
        seen.add(cls)
        place = next((i for i, other in enumerate(chosen) if issubclass(cls, get_type(other))), len(chosen))
        chosen.insert(place, argument)
    return chosen


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Let the innermost mode, then each overriding argument, handle a call of `public_api(*args, **kwargs)`.

    The first result other than NotImplemented is returned; TypeError when there is none.
    """
    candidates = _get_overloaded_args(relevant_args)
    classes = tuple(map(type, candidates))
    in_mode = bool(_C._len_torch_function_stack())
    if in_mode:
        with _pop_mode_temporarily() as mode:
            result = mode.__torch_function__(public_api, classes, args, kwargs)
        if result is not NotImplemented:
            return result
    for candidate in candidates:
        result = candidate.__torch_function__(public_api, classes, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    message = f"no implementation found for '{name}' on types that implement __torch_function__: {list(classes)}"
    if in_mode:
        message += f" nor in mode {_get_current_function_mode()}"
    raise TypeError(message)


def wrap_torch_function(dispatcher: Callable[..., Iterable[Any]]) -> Callable[..., Any]:
    """A decorator that makes a function overridable; `dispatcher`, called alike, returns the relevant arguments."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return wrap


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor or overrides functions as tensors do."""
    return type(inp) is flambeau.Tensor or hasattr(inp, "__torch_function__")


@functools.cache
def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """Functions whose results subclasses get as they are, not converted to the subclass."""
    tensor = flambeau.Tensor
    return {getattr(tensor, name).__get__ for name in ("_base", "grad", "_grad") if hasattr(tensor, name)}


def _convert(value: Any, cls: type) -> Any:
    """Tensors in a result, viewed as a subclass."""
    if cls is flambeau.Tensor:
        return value
    if isinstance(value, flambeau.Tensor) and not isinstance(value, cls):
        return value.as_subclass(cls)
    if isinstance(value, (tuple, list)):
        converted = [_convert(item, cls) for item in value]
        # Named tuples take their fields separately, other sequences as one iterable.
        return type(value)(*converted) if hasattr(value, "_fields") else type(value)(converted)
    return value


def default_torch_function(
    cls: type, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """What `Tensor.__torch_function__` does: call the function and view its tensors as the subclass."""
    if not all(issubclass(cls, other) for other in types):
        return NotImplemented
    if "torch" in sys.modules:
        beside_torch.refuse(func)
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in get_default_nowrap_functions() else _convert(result, cls)


# ---------------------------------------------------------------------------------------------- switching off


class DisableTorchFunctionSubclass:
    """A `with` block in which the classes of arguments do not override functions; modes still do."""

    _switch = staticmethod(_C._set_torch_function_subclasses_disabled)

    def __enter__(self) -> None:
        self._before = self._switch(True)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self._switch(self._before)


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """A `with` block in which neither classes nor modes override functions."""

    _switch = staticmethod(_C._set_torch_function_all_disabled)


# Programs look for these beside the native functions.
vars(_C).update(DisableTorchFunctionSubclass=DisableTorchFunctionSubclass, DisableTorchFunction=DisableTorchFunction)


# ---------------------------------------------------------------------------------------------- modes


class Mode:
    """What is active in a `with` block: on a stack that the native side keeps."""

    _push: Callable[[Any], None]
    _pop: Callable[[], Any]

    def __enter__(self) -> Any:
        self._push(self)
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self._pop()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """The older way of writing `cls(...)`."""
        return cls(*args, **kwargs)

    @classmethod
    @contextlib.contextmanager
    def _without_innermost(cls) -> Iterator[Any]:
        """Take the innermost mode off for the duration of a `with` block."""
        mode = cls._pop()
        try:
            yield mode
        finally:
            cls._push(mode)


class TorchFunctionMode(Mode):
    """While active in a `with` block, handles every call of a library function.

    Derive and define `__torch_function__(self, func, types, args=(), kwargs=None)`. Inside it the mode is not active,
    so the function may be called on.
    """

    _push = staticmethod(_C._push_torch_function_mode)
    _pop = staticmethod(_C._pop_torch_function_mode)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __torch_function__")


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing; a convenient base class."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


_push_mode, _pop_mode = _C._push_torch_function_mode, _C._pop_torch_function_mode
_pop_mode_temporarily = TorchFunctionMode._without_innermost


def _get_current_function_mode() -> TorchFunctionMode | None:
    """The innermost active mode."""
    depth = _C._len_torch_function_stack()
    return _C._get_function_stack_at(depth - 1) if depth else None


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    """All active modes, the outermost first."""
    return [_C._get_function_stack_at(i) for i in range(_C._len_torch_function_stack())]


# ---------------------------------------------------------------------------------------------- the functions there are

# Public names that never reach `__torch_function__`: they take no tensors, or they are about the library itself.
_IGNORED = (
    "typename is_tensor is_storage set_default_dtype get_default_dtype set_default_device get_default_device "
    "set_default_tensor_type manual_seed seed initial_seed get_rng_state set_rng_state set_printoptions compile load "
    "save set_num_threads get_num_threads is_grad_enabled set_grad_enabled no_grad enable_grad inference_mode "
    "is_inference_mode_enabled use_deterministic_algorithms are_deterministic_algorithms_enabled from_numpy from_file "
    "frombuffer asarray as_tensor tensor arange empty empty_strided eye full linspace logspace ones zeros rand randn "
    "randint randperm range tril_indices triu_indices promote_types result_type can_cast finfo iinfo"
).split()


# Methods that every class has its own of.
_OF_ALL_OBJECTS = ("__class__", "__init__", "__new__", "__init_subclass__", "__subclasshook__", "__getattribute__")


def _namespaces() -> list[tuple[str, Any]]:
    """Where public functions live, with the names to show."""
    root = flambeau.__name__
    places = [(root, flambeau)]
    for path in ("functional", "nn.functional", "nn.init", "linalg", "fft", "special"):
        namespace: Any = flambeau
        for part in path.split("."):
            namespace = getattr(namespace, part, None)
        if namespace is not None:
            places.append((f"{root}.{path}", namespace))
    return [*places, (f"{root}.Tensor", flambeau.Tensor)]


def _members(namespace: Any) -> Iterator[tuple[str, Any]]:
    """Public functions of a namespace, and the accessors of a class's properties."""
    attributes: Any = (types.GetSetDescriptorType, property, type(flambeau.Tensor.T))
    for name in dir(namespace):
        value = getattr(namespace, name, None)
        if isinstance(value, attributes):
            yield f"{name}.__get__", value.__get__
        elif not isinstance(value, (type, types.ModuleType)) and callable(value):
            dunder = name.startswith("__") and name.endswith("__")
            inherited = value is getattr(object, name, None) or name in _OF_ALL_OBJECTS
            if not name.startswith("_") or (dunder and not inherited):
                yield name, value


@functools.cache
def _names() -> dict[Callable[..., Any], str]:
    """Full name of each public function."""
    names: dict[Callable[..., Any], str] = {}
    for prefix, namespace in _namespaces():
        for name, function in _members(namespace):
            with contextlib.suppress(TypeError):  # not everything callable is hashable
                names.setdefault(function, f"{prefix}.{name}")
    return names


def resolve_name(f: Callable[..., Any]) -> str | None:
    """A function's public name, such as 'flambeau.Tensor.add'; None when it is not one of the library's."""
    if hasattr(f, "_schema"):
        return str(f)
    return _names().get(f)


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Public functions that cannot be overridden."""
    return {getattr(flambeau, name) for name in _IGNORED if hasattr(flambeau, name)}


@functools.cache
def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """For each namespace, the functions in it that can be overridden."""
    ignored = get_ignored_functions()

    def overridable(function: Any) -> bool:
        if getattr(type(function), "__hash__", None) is None:  # and so in no table of functions
            return False
        # Functions without a name are partial ones, which take no tensors.
        return function in _names() and function not in ignored and hasattr(function, "__name__")

    return {
        namespace: [function for _, function in _members(namespace) if overridable(function)]
        for _, namespace in _namespaces()
    }


@functools.cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each overridable function, a stand-in that accepts any arguments and returns -1."""
    functions = [function for group in get_overridable_functions().values() for function in group]
    return {function: lambda *args, **kwargs: -1 for function in functions}


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Whether a function is a method of Tensor or the accessor of one of its properties."""
    return func in _tensor_members() or getattr(func, "__name__", None) == "__get__"


@functools.cache
def _tensor_members() -> set[Callable[..., Any]]:
    return {function for _, function in _members(flambeau.Tensor)}
