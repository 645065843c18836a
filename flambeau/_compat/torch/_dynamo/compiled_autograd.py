"""Where programs switch compiled backward passes on. Backward runs in native code here, and compiled functions bring a
compiled backward of their own, so that nothing is left to switch on: what is inside runs as it does outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

compiled_autograd_enabled = False
in_compiled_autograd_region = False


@contextlib.contextmanager
def _enable(compiler_fn: Any, dynamic: bool = True, ignore_active_disable_ctx: bool = True) -> Iterator[None]:
    if not callable(compiler_fn):
        raise TypeError(f"[compiled_autograd] expected a compiler, got {type(compiler_fn).__name__}")
    yield


@contextlib.contextmanager
def _disable() -> Iterator[None]:
    yield


def reset() -> None:
    """Nothing is kept."""
