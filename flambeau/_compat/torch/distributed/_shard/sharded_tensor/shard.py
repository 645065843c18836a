"""A shard: a tensor and where it lies."""

from __future__ import annotations

from typing import Any

from flambeau.distributed._shard.metadata import ShardMetadata

__all__ = ["Shard"]


class Shard:
    def __init__(self, tensor: Any, metadata: ShardMetadata) -> None:
        if list(tensor.shape) != list(metadata.shard_sizes):
            raise ValueError(
                f"[Shard] Shard tensor size does not match with metadata.shard_lengths! Found shard tensor size: "
                f"{list(tensor.shape)}, metadata.shard_lengths: {list(metadata.shard_sizes)}, "
            )
        placement = metadata.placement
        if placement is not None and placement.device() != tensor.device:
            raise ValueError(
                f"[Shard] Local shard tensor device does not match with local Shard's placement! Found local shard tensor "
                f"device: {tensor.device}, local shard metadata placement device: {placement.device()}"
            )
        self.tensor, self.metadata = tensor, metadata

    @classmethod
    def from_tensor_and_offsets(cls, tensor: Any, shard_offsets: list[int], rank: int) -> Shard:
        return cls(tensor, ShardMetadata(shard_offsets, list(tensor.shape), f"rank:{rank}/{tensor.device}"))

    def __repr__(self) -> str:
        return f"Shard(tensor={self.tensor}, metadata={self.metadata})"
