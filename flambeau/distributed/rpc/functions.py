"""Decorators of functions that other workers call."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["async_execution"]


def async_execution(fn: Any) -> Any:
    """The function returns a future; the caller gets what the future gets."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn
    return wrapper
