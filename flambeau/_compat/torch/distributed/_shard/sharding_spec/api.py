"""`ChunkShardingSpec` divides a dimension evenly; `EnumerableShardingSpec` lists the shards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed._shard.sharding_spec import _internals
from flambeau.distributed.remote_device import _remote_device

__all__ = ["ChunkShardingSpec", "DevicePlacementSpec", "EnumerableShardingSpec", "PlacementSpec", "ShardingSpec"]


class PlacementSpec:
    """Where something lies."""


class DevicePlacementSpec(PlacementSpec):
    def __init__(self, device: Any) -> None:
        self.device = device if isinstance(device, _remote_device) else _remote_device(device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DevicePlacementSpec) and self.device == other.device

    def __hash__(self) -> int:
        return hash(self.device)


class ShardingSpec(ABC):
    """How a tensor is divided; programs may define ways of their own."""

    @abstractmethod
    def build_metadata(self, tensor_sizes: Any, tensor_properties: Any) -> Any:
        """The shards of a tensor of these sizes, as a `ShardedTensorMetadata`."""


class _ShardListSpec(ShardingSpec):
    """One that lists the shards of a tensor by its sizes."""

    @abstractmethod
    def shards_of(self, sizes: Any) -> list[ShardMetadata]:
        """The shards of a tensor of these sizes."""

    def build_metadata(self, tensor_sizes: Any, tensor_properties: Any) -> Any:
        from flambeau.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata

        return ShardedTensorMetadata(self.shards_of(tensor_sizes), tensor_sizes, tensor_properties)


class ChunkShardingSpec(_ShardListSpec):
    """One chunk of a dimension for each placement."""

    def __init__(self, dim: int | str, placements: list[Any]) -> None:
        if isinstance(dim, str):
            raise NotImplementedError(
                f"[ChunkShardingSpec] ChunkShardingSpec does not support named dimension yet, got {dim!r}"
            )
        if not isinstance(dim, int):
            raise ValueError(f"[ChunkShardingSpec] Sharding dim needs to be an integer, found: {dim}")
        self.dim = dim
        self.placements = [p if isinstance(p, _remote_device) else _remote_device(p) for p in placements]

    def shards_of(self, sizes: Any) -> list[ShardMetadata]:
        dim, count = self.dim % len(sizes), len(self.placements)
        split = _internals.get_split_size(sizes[dim], count)
        shards = []
        for index, placement in enumerate(self.placements):
            offsets, own = [0] * len(sizes), list(sizes)
            offsets[dim] = min(split * index, sizes[dim])
            own[dim] = _internals.get_chunked_dim_size(sizes[dim], split, index)
            shards.append(ShardMetadata(offsets, own, placement))
        return shards

    def __repr__(self) -> str:
        return f"ChunkShardingSpec(dim={self.dim}, placements={self.placements})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChunkShardingSpec) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class EnumerableShardingSpec(_ShardListSpec):
    """Shards as they are listed."""

    def __init__(self, shards: list[ShardMetadata]) -> None:
        if not shards:
            raise ValueError(f"[EnumerableShardingSpec] Empty shard list provided: {shards}")
        ranks = {len(shard.shard_offsets) for shard in shards}
        if len(ranks) > 1:
            raise ValueError(f"[EnumerableShardingSpec] Found inconsistent ranks for shards: {sorted(ranks)}")
        _internals.validate_non_overlapping_shards_metadata(shards)
        self.shards = list(shards)

    def shards_of(self, sizes: Any) -> list[ShardMetadata]:
        _internals.check_tensor(self.shards, sizes)
        return list(self.shards)

    def __repr__(self) -> str:
        return f"EnumerableShardingSpec(shards={self.shards})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnumerableShardingSpec) and self.shards == other.shards

    def __hash__(self) -> int:
        return hash(repr(self))


def _infer_sharding_spec_from_shards_metadata(shards: list[ShardMetadata]) -> ShardingSpec:
    """The even division that shards are, or their list when they are none."""
    placements, along = [shard.placement for shard in shards], set()
    for shard in shards:
        along |= {dim for dim, offset in enumerate(shard.shard_offsets) if offset}
    if len(along) <= 1:
        dim = next(iter(along), 0)
        in_order = sorted(shards, key=lambda shard: shard.shard_offsets[dim])
        sizes = list(in_order[-1].shard_sizes)
        sizes[dim] += in_order[-1].shard_offsets[dim]
        even = ChunkShardingSpec(dim, [shard.placement for shard in in_order])
        if all(placement is not None for placement in placements) and even.shards_of(sizes) == in_order:
            return even
    return EnumerableShardingSpec(shards)
