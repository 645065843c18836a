"""Running totals of an associative function, in a number of steps that grows with the logarithm of the length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils import _pytree as pytree

__all__ = ["associative_scan"]

Leaves = list[Any]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """Element i of the result is combine_fn of elements 0 to i of xs along a dimension; in reverse, of the last to i.

    xs is a tensor or a tree of tensors; combine_fn takes two such trees without the dimension and returns a third.
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"[associative_scan] expected combine_mode pointwise or generic, got {combine_mode!r}")
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or not all(isinstance(leaf, fl.Tensor) for leaf in leaves):
        raise RuntimeError("[associative_scan] expected tensors to scan over, got none or something else")
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    length = leaves[0].shape[0]
    if any(leaf.shape[0] != length for leaf in leaves):
        raise RuntimeError("[associative_scan] expected the same length of all tensors")

    def pair(*both: Any) -> tuple[Any, ...]:
        a, b = list(both[: len(leaves)]), list(both[len(leaves) :])
        combined = combine_fn(pytree.tree_unflatten(a, spec), pytree.tree_unflatten(b, spec))
        return tuple(pytree.tree_leaves(combined))

    batched = fl.vmap(pair)
    if combine_mode == "pointwise":
        batched = pair
    elif fl.compiler.is_exporting():  # every pair of elements is a call
        batched = lambda *both: [fl.stack(list(c)) for c in zip(*(pair(*row) for row in zip(*both)))]  # noqa: E731

    def combine(a: Leaves, b: Leaves) -> Leaves:
        return list(batched(*a, *b)) if a[0].shape[0] else [x[:0] for x in a]

    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]
    scanned = _scan(combine, leaves)
    if reverse:
        scanned = [leaf.flip(0) for leaf in scanned]
    return pytree.tree_unflatten([leaf.movedim(0, dim) for leaf in scanned], spec)


def _scan(combine: Callable[[Leaves, Leaves], Leaves], elements: Leaves) -> Leaves:
    """Pairs are combined and scanned, which gives every second result; the others are one step from those."""
    length = elements[0].shape[0]
    if length < 2:
        return elements
    odd = _scan(combine, combine([e[: length - 1 : 2] for e in elements], [e[1::2] for e in elements]))
    between = [o[: (length - 1) // 2] for o in odd]
    even = combine(between, [e[2::2] for e in elements])
    even = [fl.cat([e[:1], rest]) for e, rest in zip(elements, even)]
    return [_interleaved(a, b) for a, b in zip(even, odd)]


def _interleaved(even: Any, odd: Any) -> Any:
    pairs = fl.stack([even[: odd.shape[0]], odd], 1).flatten(0, 1)
    return pairs if even.shape[0] == odd.shape[0] else fl.cat([pairs, even[-1:]])
