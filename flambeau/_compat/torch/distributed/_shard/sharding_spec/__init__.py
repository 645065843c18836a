"""How a tensor is divided into shards."""

from __future__ import annotations

from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed._shard.sharding_spec.api import (
    ChunkShardingSpec,
    DevicePlacementSpec,
    EnumerableShardingSpec,
    PlacementSpec,
    ShardingSpec,
    _infer_sharding_spec_from_shards_metadata,
)

__all__ = [
    "ChunkShardingSpec", "DevicePlacementSpec", "EnumerableShardingSpec", "PlacementSpec", "ShardMetadata", "ShardingSpec",
    "_infer_sharding_spec_from_shards_metadata",
]  # fmt: skip
