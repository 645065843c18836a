"""A loop over the elements of tensors that carries a value along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils import _pytree as pytree

__all__ = ["scan"]


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """combine_fn(carried, element) returns the next carried value and a result; returns the last one and all results."""
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves:
        return init, []
    length = leaves[0].shape[dim]
    if length == 0:
        raise RuntimeError("[scan] expected at least one element to scan over, got a dimension of size 0")
    rows: list[list[Any]] = []
    made_spec = None
    for i in reversed(range(length)) if reverse else range(length):
        element = pytree.tree_unflatten([leaf.select(dim, i) for leaf in leaves], spec)
        init, output = combine_fn(init, element)
        row, made_spec = pytree.tree_flatten(output)
        rows.append(row)
    if reverse:
        rows.reverse()
    return init, pytree.tree_unflatten([fl.stack(list(column)) for column in zip(*rows)], made_spec)  # type: ignore[arg-type]
