"""Sizes of chunks, and checks that shards cover a tensor once."""

from __future__ import annotations

import math
from typing import Any

__all__ = [
    "check_tensor", "get_chunk_sharding_params", "get_chunked_dim_size", "get_split_size",
    "validate_non_overlapping_shards_metadata",
]  # fmt: skip


def get_split_size(dim_size: int, chunks: int) -> int:
    return -(-dim_size // chunks)


def get_chunked_dim_size(dim_size: int, split_size: int, idx: int) -> int:
    return max(min(dim_size, split_size * (idx + 1)) - split_size * idx, 0)


def get_chunk_sharding_params(sharding_dim_size: int, world_size: int, spec: Any, rank: int) -> tuple[int, int]:
    """Start and size of a rank's chunk."""
    split = get_split_size(sharding_dim_size, world_size)
    for index, placement in enumerate(spec.placements):
        if placement.rank() == rank:
            return min(index * split, sharding_dim_size), get_chunked_dim_size(sharding_dim_size, split, index)
    return -1, -1


def _check_shard_metadata_pair_overlap(first: Any, second: Any) -> bool:
    sides = zip(first.shard_offsets, first.shard_sizes, second.shard_offsets, second.shard_sizes)
    return all(a < b + n and b < a + m for a, m, b, n in sides)


def validate_non_overlapping_shards_metadata(shards: list[Any]) -> None:
    for index, first in enumerate(shards):
        for second in shards[index + 1 :]:
            if _check_shard_metadata_pair_overlap(first, second):
                raise ValueError(f"[ShardedTensor] Shards {first} and {second} overlap")


def check_tensor(shards_metadata: list[Any], tensor_dims: Any) -> None:
    """Shards that do not overlap cover a tensor when they are as large together."""
    inside = all(
        offset + size <= whole
        for shard in shards_metadata
        for offset, size, whole in zip(shard.shard_offsets, shard.shard_sizes, tensor_dims)
    )
    together = sum(math.prod(shard.shard_sizes) for shard in shards_metadata)
    if not inside or together != math.prod(tensor_dims):
        raise ValueError(
            f"[ShardedTensor] Total volume of shards: {together} does not match tensor volume: {math.prod(tensor_dims)}, "
            "in other words all the individual shards do not cover the entire tensor"
        )
