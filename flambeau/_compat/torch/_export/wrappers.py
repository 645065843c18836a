"""Decorators of code that is exported, at PyTorch's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["mark_subclass_constructor_exportable_experimental"]


def mark_subclass_constructor_exportable_experimental(constructor_subclass: Callable[..., Any]) -> Callable[..., Any]:
    """Marks the `__init__` of a tensor subclass that exported code may call. Capture reads such constructors anyway."""
    name = getattr(constructor_subclass, "__qualname__", "")
    if not callable(constructor_subclass) or not name.endswith(".__init__"):
        raise RuntimeError(
            f"[mark_subclass_constructor_exportable_experimental] expected the __init__ method of a class, got {constructor_subclass}"
        )
    return constructor_subclass
