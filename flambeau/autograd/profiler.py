"""Named ranges for profilers. Nothing is recorded without one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["record_function", "profile", "emit_nvtx"]


class record_function:
    """A named range of the program; a context manager and a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return fn(*args, **kwargs)

        return wrapper


class profile:
    """Measures the wall-clock time of a block."""

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        self.enabled, self.seconds = enabled, 0.0

    def __enter__(self) -> profile:
        import time

        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        import time

        self.seconds = time.perf_counter() - self._start


class emit_nvtx(profile):
    """Accepted for compatibility."""
