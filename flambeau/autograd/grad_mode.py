"""Modes of the calling thread: whether operations are recorded, and inference mode.

Each mode is a context manager and a decorator of functions, generator functions and coroutines.
"""

from __future__ import annotations

import functools

from flambeau import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]


GENERATOR_FLAG = 0x20  # inspect.CO_GENERATOR; importing inspect would take a third of the package's import time


def _is_generator_function(fn: Any) -> bool:
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return code is not None and bool(code.co_flags & GENERATOR_FLAG)


def _wrap_generator(make: Callable[[], Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """A generator function whose body runs in the mode, and whose caller does not."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        generator = fn(*args, **kwargs)
        try:
            with make():
                response = generator.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with make():
                        generator.close()
                    raise
                except BaseException as error:
                    with make():
                        response = generator.throw(error)
                else:
                    with make():
                        response = generator.send(request)
        except StopIteration as end:
            return end.value

    return wrapper


class _Mode:
    """Context manager and decorator; `clone` makes a fresh one for each call of a decorated function."""

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if _is_generator_function(fn):
            return _wrap_generator(self.clone, fn)
        if isinstance(fn, type):
            import warnings

            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate "
                "functions or methods.",
                FutureWarning,
                stacklevel=2,
            )
        clone = self.clone

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with clone():
                return fn(*args, **kwargs)

        return wrapper

    def clone(self) -> Any:
        return type(self)()


class no_grad(_Mode):
    """Nothing is recorded for backward inside: a `with` block, or a decorator.

    >>> x = flambeau.ones(1, requires_grad=True)
    >>> with flambeau.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __new__(cls, fn: Any = None) -> Any:
        self = super().__new__(cls)
        if fn is None:
            return self
        self.__init__()  # type: ignore[misc]
        return self(fn)

    def __init__(self, fn: Any = None) -> None:
        self._outer = False

    def __enter__(self) -> None:
        self._outer = _C._set_grad_enabled(False)

    def __exit__(self, *error: Any) -> None:
        _C._set_grad_enabled(self._outer)


class enable_grad(no_grad):
    """Operations are recorded for backward inside, also within no_grad.

    >>> x = flambeau.ones(1, requires_grad=True)
    >>> with flambeau.no_grad(), flambeau.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    def __enter__(self) -> None:
        self._outer = _C._set_grad_enabled(True)


class set_grad_enabled(_Mode):
    """Whether operations are recorded for backward: at once, or for a `with` block.

    - mode: a bool.

    >>> with flambeau.set_grad_enabled(False):
    ...     flambeau.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"[set_grad_enabled] expected a bool, got {type(mode).__name__}")
        self.mode = mode
        self.prev = _C._set_grad_enabled(mode)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        _C._set_grad_enabled(self.prev)
        return super().__call__(fn)

    def __enter__(self) -> None:
        _C._set_grad_enabled(self.mode)

    def __exit__(self, *error: Any) -> None:
        _C._set_grad_enabled(self.prev)

    def __str__(self) -> str:
        return f"flambeau.autograd.grad_mode.set_grad_enabled(mode={self.mode})"

    __repr__ = __str__

    def clone(self) -> set_grad_enabled:
        mode = object.__new__(set_grad_enabled)
        mode.mode, mode.prev = self.mode, _C.is_grad_enabled()
        return mode


class inference_mode(_Mode):
    """no_grad whose results can never take part in a recorded computation, and cost less.

    - mode: a bool.

    >>> with flambeau.inference_mode():
    ...     flambeau.ones(1).is_inference()
    True
    """

    def __new__(cls, mode: Any = True) -> Any:
        self = super().__new__(cls)
        if isinstance(mode, bool):
            return self
        self.__init__()  # type: ignore[misc]
        return self(mode)

    def __init__(self, mode: bool = True) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self._outer = _C._set_inference_mode(self.mode), _C._set_grad_enabled(not self.mode)

    def __exit__(self, *error: Any) -> None:
        inference, grad = self._outer
        _C._set_inference_mode(inference)
        _C._set_grad_enabled(grad)

    def clone(self) -> inference_mode:
        return inference_mode(self.mode)


class _Accepted(_Mode):
    """A switch that nothing asks: it is on from the call on, or in a block."""

    _now = False

    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self._before = type(self)._now
        type(self)._now = bool(mode)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None:
        type(self)._now = self._before

    def clone(self) -> Any:
        return type(self)(self.mode)


class set_multithreading_enabled(_Accepted):
    """Accepted for compatibility: backward always runs in the calling thread."""

    _now = True


class _force_original_view_tracking(_Accepted):
    """Accepted for compatibility: gradients of views that are written are computed on the memory."""


def is_multithreading_enabled() -> bool:
    """What `set_multithreading_enabled` was given last."""
    return set_multithreading_enabled._now


def is_view_replay_enabled() -> bool:
    return _force_original_view_tracking._now


class _unsafe_preserve_version_counter:
    """Puts the version counters of tensors back when the block ends."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, _C.Tensor) else tuple(tensors)
        self.versions = tuple(t._version for t in self.tensors)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None:
        for tensor, version in zip(self.tensors, self.versions):
            _C._set_version(tensor, version)
