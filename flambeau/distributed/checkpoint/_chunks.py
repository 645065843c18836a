"""Parts of tensors: which part this process has, and the copying between parts of different divisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._spec import compute_local_shape_and_global_offset

__all__ = ["chunk_of", "chunks_of", "copy_overlap", "local_of"]


def local_of(tensor: Any) -> Any:
    """The memory of this process's part."""
    return (tensor._local_tensor if isinstance(tensor, DTensor) else tensor).detach()


def chunk_of(tensor: Any) -> ChunkStorageMetadata:
    if isinstance(tensor, DTensor):
        sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        return ChunkStorageMetadata(flambeau.Size(offsets), flambeau.Size(sizes))
    return ChunkStorageMetadata(flambeau.Size([0] * tensor.dim()), flambeau.Size(tensor.shape))


def chunks_of(tensor: Any) -> list[ChunkStorageMetadata]:
    return [chunk_of(tensor)]


def copy_overlap(target: Any, target_offset: Sequence[int], source: Any, source_offset: Sequence[int]) -> None:
    """Copies the elements that two parts of one tensor have in common."""
    if target.dim() == 0:
        target.copy_(source.reshape(()))
        return
    into, out_of = target, source
    for dim in range(target.dim()):
        start = max(target_offset[dim], source_offset[dim])
        end = min(target_offset[dim] + target.shape[dim], source_offset[dim] + source.shape[dim])
        if end <= start:
            return
        into = into.narrow(dim, start - target_offset[dim], end - start)
        out_of = out_of.narrow(dim, start - source_offset[dim], end - start)
    into.copy_(out_of)


def overlaps(chunk: ChunkStorageMetadata, other: ChunkStorageMetadata) -> bool:
    return all(
        max(a, b) < min(a + m, b + n) for a, m, b, n in zip(chunk.offsets, chunk.sizes, other.offsets, other.sizes)
    )
