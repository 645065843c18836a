"""`__torch_function__` in captured code: subclasses of Tensor, other classes that override functions, and modes.

The protocol is followed while capturing: an operator whose arguments override it, or that a mode is active for, becomes a
call of Python code, which is interpreted like other code. Graphs hold plain tensors only; results of a subclass are viewed
as such after the graph. Reads of attributes that are known without data (shape, dtype, device) are not offered to
overrides.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau import _C
from flambeau._dynamo import breaks
from flambeau._dynamo.breaks import Unsupported, UserError
from flambeau._dynamo.traced import NULL, TracedTensor
from flambeau.ops import python_operators

if TYPE_CHECKING:
    from flambeau._dynamo.trace import Tracer

_HOOK = "__torch_function__"
# Special names that a subclass may define without changing what its tensors do in a graph.
_HARMLESS = frozenset(
    "__module__ __doc__ __dict__ __weakref__ __qualname__ __new__ __init__ __slots__ __firstlineno__ __annotations__ "
    "__static_attributes__ __repr__ __str__ __init_subclass__ __torch_function__".split()
)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """What a subclass of Tensor and its bases define, up to Tensor."""
    for base in cls.__mro__:
        if base is _C.Tensor or base.__module__.startswith("flambeau."):
            return
        yield from base.__dict__.items()


def check_subclass(cls: type) -> None:
    """Refuses subclasses whose behaviour is not in `__torch_function__` and ordinary methods alone."""
    own = {name for name, _ in _members(cls)}
    special = {name for name in own if name.startswith("__") and name.endswith("__")} - _HARMLESS
    if special or (cls.__module__.startswith("flambeau.") and not own) or not issubclass(cls, _C.Tensor):
        raise Unsupported(breaks.SUBCLASS, f"{cls.__name__} {' '.join(sorted(special))}".rstrip())


def lookup_member(cls: type, name: str) -> Any:
    """A member that a subclass of Tensor defines itself."""
    return next((value for member, value in _members(cls) if member == name), NULL)


def overrides(cls: type) -> bool:
    """Whether a class has a `__torch_function__` in force."""
    from flambeau._dynamo.kinds import lookup_type

    if cls is _C.Tensor or cls is TracedTensor:
        return False
    hook = lookup_type(cls, _HOOK)
    return hook is not NULL and hook is not _C._disabled_torch_function_impl


def unwrapped(value: Any) -> Any:
    """A tensor from outside as a plain one, without asking its class."""
    if not overrides(type(value)):
        return value
    before = _C._set_torch_function_subclasses_disabled(True)
    try:
        plain = _C._as_subclass(value.detach() if value.is_leaf else value, _C.Tensor)
        return plain.requires_grad_() if value.is_leaf and value.requires_grad else plain
    finally:
        _C._set_torch_function_subclasses_disabled(before)


def plainly(graph: Callable[..., Any]) -> Callable[..., Any]:
    """A graph that takes tensors of any class as plain ones."""

    def run(*args: Any) -> Any:
        before = _C._set_torch_function_subclasses_disabled(True)
        try:
            return graph(*args)
        finally:
            _C._set_torch_function_subclasses_disabled(before)

    return run


# ---------------------------------------------------------------------------------------------- the protocol


def _is_candidate(tracer: Tracer, value: Any) -> bool:
    if type(value) is TracedTensor:
        return overrides(value.cls)
    inside = id(value) in tracer.outside.known or id(value) in tracer.outside.fresh
    return inside and not isinstance(value, (type, types.ModuleType)) and overrides(type(value))


def _class_of(value: Any) -> type:
    return value.cls if type(value) is TracedTensor else type(value)


def _candidates(tracer: Tracer, values: Any) -> list[Any]:
    """Arguments that override, one for each class, subclasses before the classes they refine."""
    candidates: list[Any] = []
    for value in values:
        for item in value if type(value) in (tuple, list) else (value,):
            if not _is_candidate(tracer, item) or any(_class_of(item) is _class_of(other) for other in candidates):
                continue
            place = next(
                (i for i, o in enumerate(candidates) if issubclass(_class_of(item), _class_of(o))), len(candidates)
            )
            candidates.insert(place, item)
    return candidates


def has_overrides(tracer: Tracer, values: Any) -> bool:
    """has_torch_function()"""
    active = bool(tracer.modes.function_modes) and tracer.modes.overrides_disabled != "all"
    return active or (not tracer.modes.overrides_disabled and bool(_candidates(tracer, values)))


def dispatch(tracer: Tracer, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operator's overrides make of the call; NULL where it has none."""
    from flambeau._dynamo import attributes

    if tracer.modes.overrides_disabled == "all":
        return NULL
    candidates = [] if tracer.modes.overrides_disabled else _candidates(tracer, (*args, *kwargs.values()))
    if not candidates and not tracer.modes.function_modes:
        return NULL
    function, args = _as_called(op, target, args)
    classes = tuple(_class_of(value) for value in candidates)
    if tracer.modes.function_modes:
        mode = tracer.modes.function_modes.pop()  # inside of its own hook a mode is not active
        try:
            hook = attributes.load(tracer, mode, _HOOK)
            result = tracer.call(hook, (function, classes, args, kwargs), {})
        finally:
            tracer.modes.function_modes.append(mode)
        if result is not NotImplemented:
            return result
    for value in candidates:
        hook = attributes.load(tracer, value.cls if type(value) is TracedTensor else value, _HOOK)
        result = tracer.call(hook, (function, classes, args, kwargs), {})
        if result is not NotImplemented:
            return result
    name = getattr(function, "__name__", str(function))
    raise UserError(
        TypeError(f"[torch_function] expected one of the types {list(classes)} to implement {name}, got NotImplemented")
    )


_COMMUTE = ("add", "mul")


def _as_called(op: str, target: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The function as hooks are given it."""
    if op == "call_method":
        return getattr(_C.Tensor, target), args
    if target is getattr:
        return getattr(_C.Tensor, args[1]).__get__, args[:1]
    name = python_operators.METHODS.get(target)
    if name is None:
        return target, args
    if len(args) == 2 and type(args[0]) is not TracedTensor:  # a number on the left
        return getattr(_C.Tensor, name if name in _COMMUTE else f"__r{target.__name__.strip('_')}__"), args[::-1]
    return getattr(_C.Tensor, name), args


# ---------------------------------------------------------------------------------------------- what programs call


def default_hook(tracer: Tracer, cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Tensor.__torch_function__"""
    from flambeau.overrides import get_default_nowrap_functions

    if not all(issubclass(cls, other) for other in types):
        return NotImplemented
    before, tracer.modes.overrides_disabled = (
        tracer.modes.overrides_disabled,
        tracer.modes.overrides_disabled or "subclasses",
    )
    try:
        result = tracer.call(func, tuple(args), dict(kwargs or {}))
    finally:
        tracer.modes.overrides_disabled = before
    return result if func in get_default_nowrap_functions() else _convert(tracer, result, cls)


def _convert(tracer: Tracer, value: Any, cls: Any) -> Any:
    if type(value) is TracedTensor:
        return value if issubclass(value.cls, cls) else as_subclass(tracer, value, cls)
    if type(value) in (tuple, list):
        return type(value)(_convert(tracer, item, cls) for item in value)
    if isinstance(value, tuple) and any(type(item) is TracedTensor for item in value):
        converted = [_convert(tracer, item, cls) for item in value]
        return type(value)(*converted) if hasattr(value, "_fields") else type(value)(converted)
    return value


def as_subclass(tracer: Tracer, tensor: Any, cls: Any) -> Any:
    """Tensor.as_subclass: another object for the same data."""
    if type(tensor) is not TracedTensor or not isinstance(cls, type) or not issubclass(cls, _C.Tensor):
        raise Unsupported(breaks.SUBCLASS, getattr(cls, "__name__", ""))
    if cls is not _C.Tensor:
        check_subclass(cls)
        tracer.outside.register(cls, tracer.outside.sources.constant(cls))
    before, tracer.modes.overrides_disabled = tracer.modes.overrides_disabled, "all"
    try:
        result = tracer.builder.call_method("view_as", (tensor, tensor), {})
    finally:
        tracer.modes.overrides_disabled = before
    result.cls = cls
    return result


def set_disabled(kind: str) -> Callable[..., bool]:
    def run(tracer: Tracer, on: Any) -> bool:
        before = tracer.modes.overrides_disabled
        if on:
            tracer.modes.overrides_disabled = "all" if "all" in (kind, before) else kind
        elif before == kind:
            tracer.modes.overrides_disabled = ""
        return before == kind

    return run


def push_mode(tracer: Tracer, mode: Any) -> None:
    tracer.modes.function_modes.append(mode)


def pop_mode(tracer: Tracer) -> Any:
    if not tracer.modes.function_modes:
        raise Unsupported(breaks.CONTEXT, "a mode that was entered outside")
    return tracer.modes.function_modes.pop()
