"""The marks PyTorch puts on its functions to say how stable they are; here they say so and do nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """Mark a function or class as stable, or not."""

    def mark(thing: T) -> T:
        return thing

    return mark


_MARKED_WITH_COMPATIBILITY: dict[Any, None] = {}
