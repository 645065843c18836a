"""Loggers under the names that programs ask for."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

__all__: list[str] = []

_c10d_logger = logging.getLogger("flambeau.distributed")
F = TypeVar("F", bound=Callable[..., Any])


def _exception_logger(func: F) -> F:
    """Errors of a function are logged before they are raised."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            _c10d_logger.debug("%s raised %r", func.__name__, error)
            raise

    return wrapper  # type: ignore[return-value]


def _time_logger(func: F) -> F:
    return func
