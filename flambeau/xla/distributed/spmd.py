"""Shardings over meshes of one device: accepted, checked, and without effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["Mesh", "clear_sharding", "mark_sharding"]


class Mesh:
    """Devices in a grid with named axes."""

    def __init__(self, device_ids: Any, mesh_shape: Sequence[int], axis_names: Sequence[str] | None = None) -> None:
        self.device_ids = [int(i) for i in device_ids]
        self.mesh_shape = tuple(mesh_shape)
        self.axis_names = tuple(axis_names or ())
        if self.device_ids != [0] or math.prod(self.mesh_shape) != 1:
            raise ValueError(
                f"[Mesh] expected the one device 0, got devices {self.device_ids} in a mesh of {self.mesh_shape}"
            )

    def shape(self) -> dict[str, int]:
        return dict(zip(self.axis_names, self.mesh_shape))

    def size(self) -> int:
        return 1


def mark_sharding(tensor: Any, mesh: Mesh, partition_spec: Sequence[Any]) -> Any:
    """A tensor divided over a mesh; with one device it stays whole."""
    if len(partition_spec) != tensor.dim():
        raise ValueError(
            f"[mark_sharding] expected an entry for each of {tensor.dim()} dimensions, got {len(partition_spec)}"
        )
    return tensor


def clear_sharding(tensor: Any) -> Any:
    return tensor
