"""Parts of tensors: which part this process has, and what parts of different divisions have in common."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._spec import compute_local_shape_and_global_offset

__all__ = ["chunk_of", "chunks_of", "local_of", "overlap", "part_at", "parts_of"]


def local_of(tensor: Any) -> Any:
    """The memory of this process's part."""
    return (tensor._local_tensor if isinstance(tensor, DTensor) else tensor).detach()


def chunk_of(tensor: Any) -> ChunkStorageMetadata:
    if isinstance(tensor, DTensor):
        sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return ChunkStorageMetadata(flambeau.Size(offsets), flambeau.Size(sizes))
    return ChunkStorageMetadata(flambeau.Size([0] * tensor.dim()), flambeau.Size(tensor.shape))


def parts_of(tensor: Any) -> list[tuple[ChunkStorageMetadata, Any]]:
    """The parts that this process has: where each lies in the whole, and its memory."""
    if hasattr(tensor, "local_shards"):  # a `ShardedTensor` has any number of them
        shards = [(shard.metadata, shard.tensor.detach()) for shard in tensor.local_shards()]
        return [
            (ChunkStorageMetadata(flambeau.Size(own.shard_offsets), flambeau.Size(own.shard_sizes)), part)
            for own, part in shards
        ]
    if isinstance(tensor, DTensor) and tensor.device_mesh.get_coordinate() is None:
        return []
    return [(chunk_of(tensor), local_of(tensor))]


def part_at(tensor: Any, offset: Any) -> Any:
    """The memory of the part that begins at an offset, of the only one when none is given."""
    parts = parts_of(tensor)
    return next(part for chunk, part in parts if offset is None or tuple(chunk.offsets) == tuple(offset))


def chunks_of(tensor: Any) -> list[ChunkStorageMetadata]:
    return [chunk for chunk, _ in parts_of(tensor)]


def overlap(chunk: ChunkStorageMetadata, other: ChunkStorageMetadata) -> tuple[list[int], list[int]] | None:
    """Offsets and sizes of what two parts of one tensor have in common; None when that is nothing."""
    offsets = [max(a, b) for a, b in zip(chunk.offsets, other.offsets)]
    ends = [min(a + m, b + n) for a, m, b, n in zip(chunk.offsets, chunk.sizes, other.offsets, other.sizes)]
    if any(end <= start for start, end in zip(offsets, ends)):
        return None
    return offsets, [end - start for start, end in zip(offsets, ends)]
