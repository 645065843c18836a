"""`ShardedTensor` and the functions that make one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed._shard.metadata import ShardMetadata
from flambeau.distributed._shard.sharded_tensor.api import ShardedTensor, custom_ops
from flambeau.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from flambeau.distributed._shard.sharded_tensor.shard import Shard

ShardedTensorBase = ShardedTensor

__all__ = [
    "Shard", "ShardMetadata", "ShardedTensor", "ShardedTensorBase", "ShardedTensorMetadata", "TensorProperties",
    "custom_sharded_op_impl", "empty", "full", "init_from_local_shards", "ones", "pre_load_state_dict_hook", "rand", "randn",
    "state_dict_hook", "zeros",
]  # fmt: skip


def _factory(fill: Callable[..., Any]) -> Callable[..., ShardedTensor]:
    def make(sharding_spec: Any, *size: Any, **options: Any) -> ShardedTensor:
        return ShardedTensor(sharding_spec, *size, _fill=fill, **options)

    return make


empty, ones, zeros = _factory(flambeau.empty), _factory(flambeau.ones), _factory(flambeau.zeros)
rand, randn = _factory(flambeau.rand), _factory(flambeau.randn)


def full(sharding_spec: Any, size: Any, fill_value: Any, **options: Any) -> ShardedTensor:
    return _factory(lambda sizes, **kind: flambeau.full(sizes, fill_value, **kind))(sharding_spec, *size, **options)


def init_from_local_shards(
    local_shards: list[Shard], *global_size: Any, process_group: Any = None, init_rrefs: bool = False
) -> ShardedTensor:
    """A tensor of the shards that the processes have."""
    return ShardedTensor._init_from_local_shards(local_shards, *global_size, process_group=process_group)


def custom_sharded_op_impl(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates what computes a function on sharded tensors: `implementation(types, args, kwargs, process_group)`."""

    def keep(implementation: Callable[..., Any]) -> Callable[..., Any]:
        custom_ops[func] = implementation
        return implementation

    return keep


def state_dict_hook(module: Any, destination: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    """Adds the sharded tensors that are plain attributes of modules."""
    for path, submodule in module.named_modules():
        for name, value in submodule.__dict__.items():
            if isinstance(value, ShardedTensor):
                destination[f"{prefix}{path}{'.' if path else ''}{name}"] = value


def pre_load_state_dict_hook(
    module: Any, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any,
    errors: Any,
) -> None:  # fmt: skip
    """Takes the sharded tensors that are plain attributes of modules."""
    for path, submodule in module.named_modules():
        for name in list(submodule.__dict__):
            key = f"{prefix}{path}{'.' if path else ''}{name}"
            if isinstance(state_dict.get(key), ShardedTensor):
                setattr(submodule, name, state_dict[key])
