"""`cond`: a branch on a condition."""

from __future__ import annotations

from typing import Any

import flambeau

__all__ = ["cond"]


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """One of two functions, chosen by a condition.

    >>> flambeau.cond(flambeau.tensor(True), lambda x: x + 1, lambda x: x - 1, (flambeau.ones(2),))
    tensor([2., 2.])
    """
    if not isinstance(pred, (bool, flambeau.Tensor, flambeau.SymBool)):
        raise RuntimeError(f"[cond] expected a bool or a tensor of one, got {type(pred).__name__}")
    if isinstance(pred, flambeau.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"[cond] expected a tensor with one element, got {tuple(pred.shape)}")
    return true_fn(*operands) if pred else false_fn(*operands)


cond_op = cond  # as tensor subclasses ask for it
