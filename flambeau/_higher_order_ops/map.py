"""`map`: a function applied to each slice along the first dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils import _pytree as pytree

__all__ = ["map"]


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """Stacks f(x, *args) for the slices x of the tensors in xs, which agree in their first dimension."""
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or not all(isinstance(x, fl.Tensor) for x in leaves):
        raise RuntimeError("[map] expected xs to be made of tensors, got something else")
    lengths = sorted({x.shape[0] if x.dim() else 0 for x in leaves})
    if len(lengths) != 1 or lengths[0] == 0:
        raise RuntimeError(f"[map] expected one first dimension that is not empty, got sizes {lengths}")
    rows = [pytree.tree_flatten(f(pytree.tree_unflatten(list(part), spec), *args)) for part in zip(*leaves)]
    return pytree.tree_unflatten([fl.stack(list(column)) for column in zip(*(row for row, _ in rows))], rows[0][1])
