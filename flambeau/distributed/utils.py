"""Small functions that wrappers of modules use."""

from __future__ import annotations

from typing import Any

from flambeau.distributed import _reducer
from flambeau.nn.parallel.distributed import _moved

__all__: list[str] = []


def _sync_params_and_buffers(
    process_group: Any, module_states: list[Any], broadcast_bucket_size: int, src: int
) -> None:
    """Tensors of one rank to all others."""
    if module_states:
        _reducer._broadcast_coalesced(process_group, module_states, broadcast_bucket_size, src)


def _sync_module_states(
    module: Any,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Any = (),
    broadcast_buffers: bool = True,
) -> None:
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    states = [tensor.detach() for name, tensor in named if name not in params_and_buffers_to_ignore]
    _sync_params_and_buffers(process_group, states, broadcast_bucket_size, src)


def _verify_param_shape_across_processes(process_group: Any, tensors: list[Any], logger: Any = None) -> None:
    _reducer._verify_params_across_processes(process_group, tensors, logger)


def _to_kwargs(inputs: Any, kwargs: Any, target_device: Any, use_side_stream_for_tensor_copies: bool = False) -> Any:
    return (_moved(inputs, target_device),), (_moved(kwargs or {}, target_device),)


def _recursive_to(inputs: Any, target_device: Any, use_side_stream_for_tensor_copies: bool = False) -> list[Any]:
    return [_moved(inputs, target_device)]
