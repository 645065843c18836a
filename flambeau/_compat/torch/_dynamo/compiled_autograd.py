"""Where programs switch compiled backward passes on. Backward runs in native code here, and compiled functions bring a
compiled backward of their own; a compiler for the rest is never called, and a warning says so."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

compiled_autograd_enabled = False
in_compiled_autograd_region = False


@contextlib.contextmanager
def _enable(compiler_fn: Any, dynamic: bool = True, ignore_active_disable_ctx: bool = True) -> Iterator[None]:
    if not callable(compiler_fn):
        raise TypeError(f"[compiled_autograd] expected a compiler, got {type(compiler_fn).__name__}")
    warnings.warn(
        "[compiled_autograd] expected no compiler for backward, got one: backward runs in native code and calls none",
        stacklevel=3,
    )
    yield


@contextlib.contextmanager
def _disable() -> Iterator[None]:
    yield


def reset() -> None:
    """Nothing is kept."""
