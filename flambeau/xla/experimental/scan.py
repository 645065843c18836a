"""`scan`: a function applied along the first dimension, which carries a value from one step to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["scan"]


def scan(function: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any) -> tuple[Any, Any]:
    """The last carry, and the results of all steps stacked: `carry, result = function(carry, x)` for each x of `xs`."""
    leaves, _ = tree_flatten(xs)
    lengths = {leaf.shape[0] for leaf in leaves}
    if len(lengths) != 1:
        raise ValueError(f"[scan] expected tensors of one length, got {sorted(lengths)}")
    carry, rows = init, []
    for at in range(lengths.pop()):
        carry, result = function(carry, tree_map(lambda t, at=at: t[at], xs))
        rows.append(tree_flatten(result))
    stacked = [fl.stack(column) for column in zip(*(row for row, _ in rows))]
    return carry, tree_unflatten(stacked, rows[0][1])
