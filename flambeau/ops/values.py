"""Reading values where an op checks its arguments."""

from __future__ import annotations

from typing import Any


def all_values(tensor: Any) -> Any:
    """What a check may read: of a tensor that stands for many (in `func.vmap`), the values of all of them."""
    while (held := getattr(tensor, "_all_values", None)) is not None:
        tensor = held
    return tensor


def may_hold(condition: Any) -> bool:
    """Whether any element of a condition is true, as far as can be known: of a tensor without data it may be."""
    if hasattr(condition, "fake_mode"):
        return True
    return bool(all_values(condition).any().item())
