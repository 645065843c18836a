"""Calls that wait until their result is asked for: `torch._awaits`, `jit._awaitable` and what scripts make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

W = TypeVar("W")
_UNSET: Any = object()


class _Await(Generic[W]):
    """A call that `wait` runs, once. Attributes are those of the result."""

    def __init__(self, function: Callable[..., W] | None, args: tuple[Any, ...] = (), value: Any = _UNSET) -> None:
        self._function, self._args, self._value = function, args, value

    def wait(self) -> W:
        if self._value is _UNSET:
            assert self._function is not None
            self._value = self._function(*self._args)
        result: W = self._value
        return result

    def fn(self) -> Callable[..., W] | None:
        return self._function

    def args(self) -> tuple[Any, ...]:
        return self._args

    def is_nowait(self) -> bool:
        """Whether it was made of a value."""
        return self._function is None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.wait(), name)


def _awaitable(func: Callable[..., W], *args: Any, **kwargs: Any) -> _Await[W]:
    """The call, which runs when its result is asked for."""
    if kwargs:
        import functools

        return _Await(functools.partial(func, **kwargs), args)
    return _Await(func, args)


def _awaitable_nowait(o: W) -> _Await[W]:
    return _Await(None, (), o)


def _awaitable_wait(aw: _Await[W]) -> W:
    return aw.wait()


def wait(value: Any) -> Any:
    """The result of an await; what is none is its own result."""
    return value.wait() if isinstance(value, _Await) else value
