"""Shardings over meshes of one device: accepted, checked, and without effect."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flambeau as fl
from flambeau.xla.distributed.fsdp.utils import apply_xla_patch_to_nn_linear

XLAShardedTensor = fl.Tensor  # a tensor that is divided is one that is whole here

__all__ = [
    "HybridMesh", "Mesh", "ShardingSpec", "ShardingType", "XLAShardedTensor", "apply_xla_patch_to_nn_linear", "clear_sharding",
    "get_1d_mesh", "get_global_mesh", "mark_sharding", "mark_sharding_with_gradients", "set_global_mesh", "wrap_as_sharded_tensor",
]  # fmt: skip


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


mark_sharding_with_gradients = mark_sharding


def clear_sharding(tensor: Any) -> Any:
    return tensor


def wrap_as_sharded_tensor(tensor: Any, mesh_shape: Sequence[int] | None = None, partition_spec: Any = None) -> Any:
    return tensor


class ShardingType(enum.Enum):
    """How a tensor is divided."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    TILED = 3
    MANUAL = 4
    PARTIAL = 5
    UNKNOWN = 6


@dataclass
class ShardingSpec:
    """A division that data loaders apply to what they load."""

    mesh: Mesh
    partition_spec: Sequence[Any]
    minibatch: bool = False

    def can_apply(self, tensor: Any) -> bool:
        return len(self.partition_spec) == tensor.dim()

    def apply(self, tensor: Any) -> None:
        mark_sharding(tensor, self.mesh, self.partition_spec)


class HybridMesh(Mesh):
    """A mesh over hosts and the devices of each."""

    def __init__(
        self, *, ici_mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int] | None = None, axis_names: Any = None
    ) -> None:
        outer = dcn_mesh_shape or [1] * len(ici_mesh_shape)
        super().__init__([0], [a * b for a, b in zip(ici_mesh_shape, outer)], axis_names)


_global_mesh: Mesh | None = None


def set_global_mesh(mesh: Mesh) -> None:
    global _global_mesh
    _global_mesh = mesh


def get_global_mesh() -> Mesh | None:
    return _global_mesh


def get_1d_mesh(axis_name: str | None = None) -> Mesh:
    """All devices in a row."""
    return Mesh([0], (1,), None if axis_name is None else (axis_name,))
