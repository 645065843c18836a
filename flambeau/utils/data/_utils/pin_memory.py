"""Batches in pinned memory, where there is an accelerator that profits from it."""

from __future__ import annotations

import collections.abc
from typing import Any

from flambeau._C import Tensor

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """A batch with all its tensors pinned; objects may have a method `pin_memory` of their own."""
    if isinstance(data, Tensor):
        return data.pin_memory(device) if device is not None else data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, collections.abc.Mapping):
        return {key: pin_memory(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(pin_memory(value, device) for value in data))
    if isinstance(data, collections.abc.Sequence):
        return [pin_memory(value, device) for value in data]
    return data
