"""The profiler's older place: named ranges, and `profile` with the interface it had before `flambeau.profiler`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

__all__ = ["record_function", "profile", "emit_nvtx", "emit_itt", "EventList"]  # noqa: F822 (two are made on demand)

# The profilers that are recording, innermost last; `record_function` reports to it.
_active: list[Any] = []


class record_function:
    """A named range of the program; a context manager and a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args

    def __enter__(self) -> record_function:
        self._start = time.perf_counter_ns()
        return self

    def __exit__(self, *error: Any) -> None:
        for profiler in _active:
            profiler._record(self.name, self._start, time.perf_counter_ns(), "user_annotation")

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return fn(*args, **kwargs)

        return wrapper


_open_ranges: dict[int, record_function] = {}  # of `ops.profiler`, by the number in their handles


def register_operators() -> None:
    """`ops.profiler._record_function_enter` and `_exit`: ranges as operators, the way scripts call them."""
    import flambeau
    from flambeau import library

    def enter(name: str, args: str | None = None) -> Any:
        handle = flambeau.tensor([id(name) ^ time.perf_counter_ns() & 0x7FFFFFFFFFFF])
        _open_ranges[int(handle)] = record_function(name, args).__enter__()
        return handle

    def leave(handle: Any) -> None:
        named_range = _open_ranges.pop(int(handle), None)
        if named_range is not None:
            named_range.__exit__()

    for name in ("_record_function_enter", "_record_function_enter_new"):
        library.define(f"profiler::{name}", "(str name, str? args=None) -> Tensor")
        library.impl(f"profiler::{name}", "CompositeImplicitAutograd", enter)
    for name in ("_record_function_exit", "_record_function_exit._RecordFunction"):
        library.define(f"profiler::{name}", "(Tensor handle) -> ()")
        library.impl(f"profiler::{name}", "CompositeImplicitAutograd", leave)


class emit_nvtx:
    """Would mark operators for a vendor's profiler, which is not written: only `enabled=False` can be entered."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            raise NotImplementedError(
                f"[{type(self).__name__}] expected enabled=False, got True: operators are not marked for vendors' "
                "profilers; use profiler.profile"
            )
        return self

    def __exit__(self, *error: Any) -> None: ...


class emit_itt(emit_nvtx):
    """The same for Intel's VTune."""


def __getattr__(name: str) -> Any:
    if name in ("profile", "EventList", "FunctionEvent", "kineto_available"):
        from flambeau import profiler

        return getattr(profiler, "_LegacyProfile" if name == "profile" else name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
