"""What the gradients that tools/gradient_definitions.py writes call, as native code runs it."""

from __future__ import annotations

from typing import Any

import flambeau as fl


def lifted(x: Any, like: Any) -> Any:
    """A number as a tensor, for operators that take nothing else."""
    if isinstance(x, fl.Tensor):
        return x
    return fl.scalar_tensor(x, dtype=like.dtype, device=like.device)


def chosen(condition: Any, a: Any, b: Any, like: Any) -> Any:
    """where(), of numbers as well."""
    if not isinstance(condition, fl.Tensor):
        return lifted(a if condition else b, like)
    if condition.dtype != fl.bool:
        condition = condition != 0
    return fl.where(condition, lifted(a, like), lifted(b, like))
