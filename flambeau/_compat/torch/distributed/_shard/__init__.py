"""Tensors in shards, as PyTorch had them before `DTensor`."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import _groups as groups
from flambeau.distributed._objects import broadcast_object_list

__all__ = ["_shard_tensor", "shard_parameter"]


def _shard_tensor(tensor: Any, sharding_spec: Any, src_rank: int = 0, process_group: Any = None) -> Any:
    """The tensor of one rank, divided over all."""
    from flambeau.distributed._shard.sharded_tensor.api import ShardedTensor

    if not tensor.is_contiguous():
        raise ValueError(
            "[_shard_tensor] expected a contiguous tensor, got one that is not: input tensor is not contiguous"
        )
    box = [tensor.detach()]
    broadcast_object_list(box, src_rank, process_group)
    return ShardedTensor._of_whole(box[0], sharding_spec, process_group)


def shard_parameter(
    module: Any, param_name: str, sharding_spec: Any, src_rank: int = 0, process_group: Any = None
) -> None:
    """Replaces a parameter of a module by its division."""
    if not hasattr(module, param_name):
        raise AttributeError(f"[shard_parameter] {type(module).__name__} has no attribute `{param_name}`")
    tensor = getattr(module, param_name)
    if not isinstance(tensor, flambeau.Tensor):
        raise ValueError(
            f"[shard_parameter] Expected {type(module).__name__}.{param_name} to be a Tensor, but found {type(tensor).__name__}"
        )
    sharded = _shard_tensor(tensor, sharding_spec, src_rank, process_group or groups._get_default_group())
    module.register_parameter(param_name, flambeau.nn.Parameter(sharded, requires_grad=tensor.requires_grad))
