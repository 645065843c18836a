"""Batching rules of joining, splitting, padding and reordering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.batching import Held, along, on_matrices, on_value, rank_of, shifted, with_batch
from flambeau.ops.rules import batching

batching("tril", "triu")(on_matrices)
batching("flip", "roll")(along)


@batching("_edge_pad_backward")
def edge_pad_backward(mode: Any, func: Any, held: Held, sizes: Sequence[int], *args: Any) -> Any:
    return func(held.value, [mode.size, *sizes], *args)


@batching("constant_pad_nd", "_edge_pad")
def pad(mode: Any, func: Any, held: Held, *args: Any, **kwargs: Any) -> Any:
    return on_value(mode, func, held, *args, **kwargs)


@batching("cat")
def cat(mode: Any, func: Any, tensors: list[Any], dim: int = 0) -> Any:
    rank = max(rank_of(t) for t in tensors)
    joined = [t for t in tensors if not (rank_of(t) == 1 and rank != 1)]  # empty ones that are left out
    return func([with_batch(mode, t) for t in joined], shifted(dim, rank))


@batching("stack")
def stack(mode: Any, func: Any, tensors: list[Any], dim: int = 0) -> Any:
    return func([with_batch(mode, t) for t in tensors], shifted(dim, rank_of(tensors[0]) + 1))
