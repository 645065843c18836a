"""Parts of tensors with and without padding, and collectives along a dimension of a mesh."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives

__all__ = ["mesh_broadcast", "mesh_scatter", "pad_tensor", "unpad_tensor"]


def pad_tensor(tensor: Any, pad_dim: int, pad_size: int) -> Any:
    """The tensor with zeros behind it along a dimension."""
    if pad_size == 0:
        return tensor
    pad = [0, 0] * (tensor.ndim - pad_dim)
    pad[-1] = pad_size
    return flambeau.nn.functional.pad(tensor, pad)


def unpad_tensor(tensor: Any, pad_dim: int, pad_size: int) -> Any:
    return tensor if pad_size == 0 else tensor.narrow(pad_dim, 0, tensor.size(pad_dim) - pad_size)


def mesh_scatter(
    output: Any, scatter_list: list[Any], mesh: Any, mesh_dim: int = 0, async_op: bool = False, *, group_src: int = 0
) -> Any:
    """Tensors of one process of a mesh dimension to all of it."""
    group = mesh.get_group(mesh_dim)
    sent = scatter_list if group.rank() == group_src else None
    return collectives.scatter(output, sent, group=group, group_src=group_src, async_op=async_op)


def mesh_broadcast(tensor: Any, mesh: Any, mesh_dim: int = 0, async_op: bool = False, *, group_src: int = 0) -> Any:
    return collectives.broadcast(tensor, group=mesh.get_group(mesh_dim), group_src=group_src, async_op=async_op)
