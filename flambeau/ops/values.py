"""Reading values where an op checks its arguments."""

from __future__ import annotations

from typing import Any


def all_values(tensor: Any) -> Any:
    """What a check may read: of a tensor that stands for many (in `func.vmap`), the values of all of them."""
    while (held := getattr(tensor, "_all_values", None)) is not None:
        tensor = held
    return tensor
