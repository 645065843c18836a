"""`__torch_dispatch__`: modes that see every operator below autograd, and helpers for tensor subclasses that do.

The stack of active modes is kept by the native dispatcher, which calls the innermost mode with itself taken off.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau import _C, _ops
from flambeau.overrides import DisableTorchFunctionSubclass, Mode


class TorchDispatchMode(Mode):
    """While active in a `with` block, handles every operator call.

    Derive and define `__torch_dispatch__(self, func, types, args=(), kwargs=None)`; `func` is the operator. Inside it
    the mode is not active, so the operator may be called on.
    """

    _sees_parts = True  # of operators that ATen takes apart: `aten_parts` of flambeau/ops/rules.py

    _push = staticmethod(_C._push_torch_dispatch_mode)
    _pop = staticmethod(_C._pop_torch_dispatch_mode)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise NotImplementedError(f"{type(self).__name__} does not define __torch_dispatch__")


class OperatorRecorder(TorchDispatchMode):
    """Records operator calls below autograd. An operator that has a decomposition is recorded as the calls of that."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        wrapper = next((cls for cls in types if is_traceable_wrapper_subclass_type(cls)), None)
        if wrapper is not None:  # what it makes of the call is recorded
            with self:
                return wrapper.__torch_dispatch__(func, types, args, kwargs)
        decomposition = self.decomposition(func)
        if decomposition is not None:
            with self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return self.decomposed(func, args, kwargs, result)
        return self.call(func, args, kwargs)

    def decomposition(self, op: Any) -> Callable[..., Any] | None:
        """The function to run in place of an operator; its result NotImplemented is as if there were none."""
        raise NotImplementedError

    def decomposed(self, op: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """The result of a decomposition, as the operator would return it."""
        return result

    def call(self, op: Any, args: Any, kwargs: Any) -> Any:
        """Calls the operator and enters the call in the record."""
        raise NotImplementedError


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing; a convenient base class."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


_push_mode, _pop_mode = _C._push_torch_dispatch_mode, _C._pop_torch_dispatch_mode
_pop_mode_temporarily = TorchDispatchMode._without_innermost


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    """All active modes, the outermost first."""
    return [_C._get_dispatch_stack_at(i) for i in range(_C._len_torch_dispatch_stack())]


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    """The innermost active mode."""
    depth = _C._len_torch_dispatch_stack()
    return _C._get_dispatch_stack_at(depth - 1) if depth else None


def is_in_torch_dispatch_mode() -> bool:
    """Whether any mode is active."""
    return _C._len_torch_dispatch_stack() > 0


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    """Take all modes off for the duration of a `with` block."""
    modes = [_pop_mode() for _ in range(_C._len_torch_dispatch_stack())]
    try:
        yield modes
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


# ---------------------------------------------------------------------------------------------- wrapper subclasses


def is_traceable_wrapper_subclass_type(cls: type) -> bool:
    """Whether tensors of a class say how to take them apart (`__tensor_flatten__`) and put them together."""
    return (
        issubclass(cls, flambeau.Tensor)
        and cls is not flambeau.Tensor
        and hasattr(cls, "__tensor_flatten__")
        and hasattr(cls, "__tensor_unflatten__")
    )


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether an object is a tensor made of tensors, and says how: see `is_traceable_wrapper_subclass_type`."""
    return is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(t: Any, callback: Callable[[str, Any], Any], outer_size=None, outer_stride=None) -> Any:  # type: ignore[no-untyped-def]
    """The same wrapper around callback(name, inner) for each of its inner tensors."""
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    result = type(t).__tensor_unflatten__(inner, context, size, stride)
    if result.shape != size or result.stride() != tuple(stride):
        raise RuntimeError(
            f"[transform_subclass] expected {type(t).__name__} of size {tuple(size)} and stride {tuple(stride)}, got "
            f"{tuple(result.shape)} and {tuple(result.stride())}"
        )
    return result


def return_and_correct_aliasing(func: Any, args: tuple, kwargs: dict | None, out: Any) -> Any:
    """The outputs a wrapper subclass must return from `__torch_dispatch__`, given those it computed.

    Where the operator's schema says that an output is a mutated argument, that argument is returned itself; where it is
    a view, the output is made to share the argument's storage.
    """
    schema = func._schema
    arguments = dict(zip((argument.name for argument in schema.arguments), args)) | (kwargs or {})
    sources = [
        (frozenset(argument.alias_info.before_set), argument.alias_info.is_write, arguments.get(argument.name))
        for argument in schema.arguments
        if argument.alias_info is not None
    ]

    def corrected(declared: Any, value: Any) -> Any:
        if declared.alias_info is None:
            return value
        wanted = frozenset(declared.alias_info.before_set)
        for names, written, source in sources:
            # A list of views declares an alias without saying of what.
            if source is None or (wanted and not names & wanted):
                continue
            if written:
                return source
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                _share_storage(source, tensor)
        return value

    if len(schema.returns) == 1:
        return corrected(schema.returns[0], out)
    if isinstance(out, (list, tuple)):
        return type(out)([corrected(declared, value) for declared, value in zip(schema.returns, out)])
    return out


def _share_storage(source: Any, view: Any) -> None:
    """Make `view` use `source`'s storage, keeping its size, stride and offset."""
    if not isinstance(view, flambeau.Tensor) or view is source or not isinstance(source, flambeau.Tensor):
        return
    with DisableTorchFunctionSubclass(), _C._DisableTorchDispatch(), _C._AutoDispatchBelowAutograd():
        _ops._set_storage_(view, source, view.storage_offset(), view.size(), view.stride())
