"""`gradient_accumulation`: a step for each part of a batch, with the mean of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["gradient_accumulation"]


def gradient_accumulation(
    train_step: Callable[..., Any], iterable_tensors: Sequence[Any], model: Any, *carried_tensors: Any
) -> tuple[Any, ...]:
    """(mean loss, carried tensors): `train_step(*parts, *carried)` returns a loss and the carried tensors of the next step, for
    each part of the iterable tensors along their first dimension. Gradients of the model are those of the mean loss."""
    lengths = {t.shape[0] for t in iterable_tensors}
    if len(lengths) != 1:
        raise ValueError(f"[gradient_accumulation] expected tensors of one length, got {sorted(lengths)}")
    steps = lengths.pop()
    total: Any = None
    carried = carried_tensors
    for at in range(steps):
        result = train_step(*(t[at] for t in iterable_tensors), *carried)
        loss, *rest = result if isinstance(result, (list, tuple)) else (result,)
        carried = tuple(t.detach() for t in rest)
        part = loss / steps
        part.backward()
        total = part.detach() if total is None else total + part.detach()
    return (total, *carried)
