"""Marks for NVIDIA's profilers, through the library that comes with them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libnvToolsExt.so.1")
    except OSError as error:
        raise RuntimeError("[nvtx] expected libnvToolsExt.so.1, got a machine without NVTX functions") from error
    library.nvtxRangeStartA.restype = ctypes.c_uint64
    library.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
    return library


def range_push(msg: str) -> int:
    """Open a range inside the current one; returns its depth."""
    return int(_library().nvtxRangePushA(msg.encode()))


def range_pop() -> int:
    """Close the innermost range; returns its depth."""
    return int(_library().nvtxRangePop())


def range_start(msg: str) -> int:
    """Open a range that any thread may close, by the number returned."""
    return int(_library().nvtxRangeStartA(msg.encode()))


def range_end(range_id: Any) -> None:
    _library().nvtxRangeEnd(range_id)


def mark(msg: str) -> None:
    _library().nvtxMarkA(msg.encode())


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range for a `with` block."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
