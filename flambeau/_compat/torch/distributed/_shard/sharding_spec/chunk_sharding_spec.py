"""The place where PyTorch has `ChunkShardingSpec`."""

from flambeau.distributed._shard.sharding_spec.api import ChunkShardingSpec

__all__ = ["ChunkShardingSpec"]
