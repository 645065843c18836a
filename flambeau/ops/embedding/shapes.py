"""Shape rules of embedding tables."""

from __future__ import annotations

from flambeau.ops.geometry import NOTHING, Geometry, Ints
from flambeau.ops.rules import shape


@shape("embedding")
def embedding(weight: Geometry, indices: Geometry) -> Ints:
    return (*indices.sizes, *weight.sizes[1:])


@shape("_embedding_bag")
def embedding_bag(
    weight: Geometry, indices: Geometry, offsets: Geometry, mode: int, include_last_offset: bool
) -> list[Ints]:
    bags = offsets.sizes[0] - 1 if include_last_offset else offsets.sizes[0]
    table = (bags, weight.sizes[1])
    return [table, indices.sizes[:1], (bags,), table if mode == 2 else NOTHING]


@shape("embedding_renorm_")
def embedding_renorm(self: Geometry) -> Ints:
    return self.sizes
