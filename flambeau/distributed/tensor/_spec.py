"""What is known of a distributed tensor: its mesh, its placements, and the shape, strides and dtype of the whole."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.placement_types import Placement, Shard, _StridedShard

__all__ = [
    "DTensorSpec",
    "ShardOrderEntry",
    "TensorMeta",
    "compute_local_shape_and_global_offset",
    "compute_local_shape",
    "normalize_placements",
]


class TensorMeta(NamedTuple):
    shape: Any
    stride: tuple[int, ...]
    dtype: Any


class ShardOrderEntry(NamedTuple):
    """In which order mesh dimensions divide a dimension of a tensor: for files of PyTorch, here it is that of the mesh."""

    tensor_dim: int
    mesh_dims: tuple[int, ...]


@dataclass(frozen=True)
class DTensorSpec:
    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta | None = None

    @property
    def device_mesh(self) -> DeviceMesh:
        return self.mesh

    @property
    def geometry(self) -> TensorMeta:
        """That of the whole, which the spec of every tensor has."""
        assert self.tensor_meta is not None
        return self.tensor_meta

    @property
    def shape(self) -> Any:
        return self.geometry.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dim_map(self) -> list[int]:
        """For each dimension of the tensor the mesh dimension that divides it, or -1."""
        mapped = [-1] * self.ndim
        for mesh_dim, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                mapped[placement.dim] = mesh_dim
        return mapped

    def __getstate__(self) -> dict[str, Any]:
        return {
            "mesh": self.mesh, "placements": self.placements, "tensor_meta": self.tensor_meta,
            "shard_order": self._shard_order(), "use_strided_shard_as_shard_order": False, "_hash": None,
        }  # fmt: skip

    def _shard_order(self) -> tuple[Any, ...]:
        dims: dict[int, list[int]] = {}
        for mesh_dim, placement in enumerate(self.placements):
            if isinstance(placement, Shard):
                dims.setdefault(placement.dim, []).append(mesh_dim)
        return tuple(ShardOrderEntry(dim, tuple(dims[dim])) for dim in sorted(dims))

    def __setstate__(self, state: dict[str, Any]) -> None:
        mesh, placements, meta = state["mesh"], state["placements"], state["tensor_meta"]
        known = isinstance(mesh, DeviceMesh) and isinstance(meta, TensorMeta) and isinstance(placements, tuple)
        if not known or not all(isinstance(placement, Placement) for placement in placements):
            raise ValueError(
                "[load] expected the mesh, placements and shape of a distributed tensor, got something else"
            )
        for entry in state.get("shard_order") or ():
            if list(entry[1]) != sorted(entry[1]):
                raise ValueError(f"[load] expected parts divided in the order of the mesh, got {entry}")
        for name, value in (("mesh", mesh), ("placements", placements), ("tensor_meta", meta)):
            object.__setattr__(self, name, value)

    def is_replicated(self) -> bool:
        return all(placement.is_replicate() for placement in self.placements)


def normalize_placements(
    placements: Any, mesh: DeviceMesh, ndim: int, refusal: type[Exception] = AssertionError
) -> tuple[Placement, ...]:
    from flambeau.distributed.tensor.placement_types import Replicate

    normalized = [Replicate() for _ in range(mesh.ndim)] if placements is None else list(placements)
    if len(normalized) != mesh.ndim:
        raise ValueError(
            f"[DTensor] `placements` must have the same length as `device_mesh.ndim`! Found placements length: {len(normalized)}, "
            f"and device_mesh.ndim: {mesh.ndim}."
        )
    normal: list[Placement] = []
    for placement in normalized:
        if isinstance(placement, Shard) and placement.dim < 0:
            placement = copy.copy(placement)
            placement.dim += ndim
        if isinstance(placement, Shard) and placement.dim >= max(ndim, 1):
            raise refusal(f"[DTensor] expected a dimension below {ndim} to shard along, got {placement.dim}")
        normal.append(placement)
    return tuple(normal)


def local_shape_and_offset(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[list[int], list[int]]:
    sizes, offsets = list(shape), [0] * len(shape)
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return [0], []
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, Shard):
            pieces = placement.split_factor if isinstance(placement, _StridedShard) else 1
            part, start = Shard.local_shard_size_and_offset(
                sizes[placement.dim] // pieces, mesh.size(mesh_dim), coordinate[mesh_dim]
            )
            part *= pieces
            offsets[placement.dim] += start
            sizes[placement.dim] = part
    return sizes, offsets


def compute_local_shape(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]) -> list[int]:
    """The shape of this process's part."""
    return local_shape_and_offset(shape, mesh, placements)[0]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes, offsets = local_shape_and_offset(global_shape, mesh, placements)
    return tuple(sizes), tuple(offsets)
