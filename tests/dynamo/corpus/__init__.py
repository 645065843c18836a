"""Small programs, each a function and its inputs, that must do the same compiled as in plain Python."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau as fl


class Program(NamedTuple):
    name: str
    function: Callable[..., Any]
    make_inputs: Callable[[], tuple[Any, ...]]
    breaks: bool  # whether the graph may break
    state: Any  # module-level state to compare after the call, and to put back before it
    rounding: bool = False  # whether the last bits may differ: NumPy's own functions have others than tensors


PROGRAMS: list[Program] = []


def T(*shape: int, dtype: Any = None, start: float = 1.0) -> Any:
    """A tensor with different values, some of them negative."""
    count = 1
    for size in shape:
        count *= size
    values = (fl.arange(count, dtype=fl.float32) * 0.37 + start) * fl.where(fl.arange(count) % 3 == 2, -1.0, 1.0)
    values = values.reshape(shape)
    return values if dtype is None else values.to(dtype)


def program(*inputs: Any, breaks: bool = False, state: Any = None, rounding: bool = False) -> Callable[[Any], Any]:
    """Registers a program. Inputs are values or functions that make them anew."""

    def register(function: Any) -> Any:
        def make() -> tuple[Any, ...]:
            return tuple(
                value() if callable(value) and not isinstance(value, enum.EnumMeta) else value for value in inputs
            )

        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__.rpartition('.')[2]}"
        PROGRAMS.append(Program(name, function, make, breaks, state, rounding))
        return function

    return register


def t(*shape: int, **options: Any) -> Callable[[], Any]:
    return lambda: T(*shape, **options)
