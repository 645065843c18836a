"""Distributed tensors in files, as PyTorch writes them: the local part, the mesh and the placements.

`save` and pickle call the `__reduce_ex__` of `DTensor`; `load` makes objects of the classes that `register` names, and nothing else.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import _utils
from flambeau.distributed._mesh_layout import _FlatLayout, _MeshLayout
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._spec import DTensorSpec, ShardOrderEntry, TensorMeta
from flambeau.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard
from flambeau.serialization import unpickler

__all__ = ["reduce", "register"]


def reduce(tensor: Any) -> Any:
    """The answer of `__reduce_ex__`."""
    meta = tensor._spec.geometry
    args = (
        type(tensor), tensor.dtype, tuple(meta.shape), tuple(meta.stride), 0, flambeau.strided, tensor.device,
        tensor.requires_grad,
    )  # fmt: skip
    attributes = {"_is_param": True} if getattr(tensor, "_is_param", False) else None
    slots = {"_local_tensor": tensor._local_tensor.detach(), "_spec": tensor._spec}
    _utils.use_torch_names()
    arguments = (_utils._rebuild_wrapper_subclass, type(tensor), args, (attributes, slots))
    return _utils._rebuild_from_type_v2, arguments


def register(kind: type) -> None:
    """Lets checkpoints name `DTensor` and what it consists of."""
    tensors, specs = "torch.distributed.tensor", "torch.distributed.tensor._dtensor_spec"
    layouts, placements = "torch.distributed._mesh_layout", "torch.distributed.tensor.placement_types"
    unpickler.add_own_globals(
        {
            f"{tensors}.DTensor": kind, f"{specs}.DTensorSpec": DTensorSpec, f"{specs}.TensorMeta": TensorMeta,
            f"{specs}.ShardOrderEntry": ShardOrderEntry, "torch.distributed.device_mesh.DeviceMesh": DeviceMesh,
            f"{layouts}._MeshLayout": _MeshLayout, f"{layouts}._FlatLayout": _FlatLayout,
            **{f"{placements}.{p.__name__}": p for p in (Partial, Replicate, Shard, _StridedShard)},
        }
    )  # fmt: skip
