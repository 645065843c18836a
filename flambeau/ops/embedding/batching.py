"""Batching rules of embedding tables."""

from __future__ import annotations

from typing import Any

from flambeau.ops.batching import Held, one_by_one
from flambeau.ops.rules import batching


@batching("embedding")
def embedding(mode: Any, func: Any, weight: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(weight, Held):
        return one_by_one(mode, func, weight, indices, *args, **kwargs)
    return func(weight, indices.value, *args, **kwargs)
