"""Results that may come later: `Future`, `collect_all`, `wait_all`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")


class Future(Generic[T]):
    """A result that another thread sets, with functions to be called then."""

    def __init__(self, *, devices: Any = None) -> None:
        self._condition = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Any], Any]] = []

    def done(self) -> bool:
        return self._done

    def wait(self) -> T:
        """The result, once it is there; raises the error if there was one."""
        with self._condition:
            self._condition.wait_for(lambda: self._done)
        if self._error is not None:
            raise self._error
        return self._value

    def value(self) -> T:
        """The result of a future that is done."""
        if not self._done:
            raise RuntimeError("[Future.value] expected a future that is done, got one that is not")
        return self.wait()

    def then(self, callback: Callable[[Future[T]], Any]) -> Future[Any]:
        """The future of a function called with this one when it is done."""
        following: Future[Any] = Future()

        def run(done: Future[T]) -> None:
            try:
                following.set_result(callback(done))
            except Exception as error:
                following.set_exception(error)

        self.add_done_callback(run)
        return following

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        with self._condition:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def set_result(self, result: T) -> None:
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        if not isinstance(result, BaseException):
            raise AssertionError(f"[Future.set_exception] expected an exception, got {result!r}")
        self._finish(None, result)

    def _finish(self, value: Any, error: BaseException | None) -> None:
        with self._condition:
            if self._done:
                raise RuntimeError("[Future] expected a result to be set once, got a second one")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            callback(self)


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future that is done when all the given ones are; its result is their list."""
    result: Future[list[Future[Any]]] = Future()
    waiting = len(futures)
    lock = threading.Lock()

    def one_done(_: Any) -> None:
        nonlocal waiting
        with lock:
            waiting -= 1
            last = waiting == 0
        if last:
            result.set_result(futures)

    if not futures:
        result.set_result(futures)
    for future in futures:
        future.add_done_callback(one_done)
    return result


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all futures."""
    return [future.wait() for future in collect_all(futures).wait()]
