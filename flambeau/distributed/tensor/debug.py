"""Counts of the collectives that distributed tensors run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

from flambeau.distributed import _collectives as collectives
from flambeau.distributed.tensor.placement_types import Shard

__all__ = ["CommDebugMode", "visualize_sharding"]


def visualize_sharding(dtensor: Any, header: str = "", use_rich: bool = False) -> None:
    """Prints which part of a tensor of one or two dimensions each process holds; on the first process only."""
    if dtensor.numel() == 0 or dtensor.dim() > 2:
        raise RuntimeError(f"[visualize_sharding] expected a tensor of 1 or 2 dimensions, got {tuple(dtensor.shape)}")
    mesh = dtensor.device_mesh
    if mesh.get_coordinate() is None or any(mesh.get_coordinate()):
        return
    if header:
        print(header)
    for place in itertools.product(*(range(size) for size in mesh.shape)):
        sizes, offsets = _part_at(dtensor.shape, mesh.shape, dtensor.placements, place)
        spans = ", ".join(f"{start}:{start + size}" for size, start in zip(sizes, offsets))
        print(f"{mesh.device_type}:{int(mesh.mesh[place])}  [{spans}]")


def _part_at(shape: Any, mesh_shape: Any, placements: Any, place: Any) -> tuple[list[int], list[int]]:
    """Sizes and offsets of the part of the process at a place of the mesh."""
    sizes, offsets = list(shape), [0] * len(shape)
    for placement, count, index in zip(placements, mesh_shape, place):
        if isinstance(placement, Shard):
            size, start = Shard.local_shard_size_and_offset(sizes[placement.dim], count, index)
            offsets[placement.dim] += min(start, sizes[placement.dim])
            sizes[placement.dim] = size
    return sizes, offsets


class CommDebugMode:
    """A `with` block that counts the collectives inside: those of distributed tensors, functional ones and plain ones."""

    def __init__(self) -> None:
        self._seen: list[str] = []

    def __enter__(self) -> CommDebugMode:
        self._seen = []
        self._watcher = self._seen.append
        collectives.watchers.append(self._watcher)
        return self

    def __exit__(self, *error: object) -> None:
        collectives.watchers.remove(self._watcher)

    def get_total_counts(self) -> int:
        return len(self._seen)

    def get_comm_counts(self) -> Any:
        import flambeau
        from flambeau.distributed import _functional_collectives  # noqa: F401

        counts: Any = defaultdict(int)
        for operator in self._seen:
            namespace, _, name = operator.partition(".")
            counts[getattr(getattr(flambeau.ops, namespace), name)] += 1
        return counts
