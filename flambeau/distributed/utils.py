"""Small functions that wrappers of modules use."""

from __future__ import annotations

import traceback
from typing import Any

import flambeau
from flambeau.distributed import _reducer
from flambeau.nn.parallel.distributed import _moved
from flambeau.utils import _pytree as pytree

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


def _p_assert(cond: Any, s: str, raise_assertion_error: bool = True) -> None:
    """An assertion that is seen in backward hooks, too: it is printed before it is raised."""
    if not cond:
        print(s)
        traceback.print_stack()
        if raise_assertion_error:
            raise AssertionError(s)


def _apply_to_tensors(fn: Any, container: Any) -> Any:
    """The structure with `fn` of each of its tensors."""
    return pytree.tree_map_only(flambeau.Tensor, fn, container)


def _replace_by_prefix(state_dict: dict[str, Any], old_prefix: str, new_prefix: str) -> None:
    """Other beginnings of names, in place."""
    if old_prefix == new_prefix:
        raise ValueError("[_replace_by_prefix] old_prefix and new_prefix must be distinct")
    for key in [key for key in state_dict if key.startswith(old_prefix)]:
        state_dict[new_prefix + key[len(old_prefix) :]] = state_dict.pop(key)


def _pack_kwargs(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Arguments in one row, and the names of the last of them."""
    return (*args, *kwargs.values()), tuple(kwargs)


def _unpack_kwargs(flat_args: tuple[Any, ...], kwarg_keys: tuple[str, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    count = len(flat_args) - len(kwarg_keys)
    if count < 0:
        raise AssertionError(f"[_unpack_kwargs] too many keys {len(kwarg_keys)} vs. {len(flat_args)}")
    return flat_args[:count], dict(zip(kwarg_keys, flat_args[count:]))


def _alloc_storage(tensor: Any, size: Any) -> None:
    """Memory for a tensor that has given its own back."""
    with flambeau.no_grad():
        if tensor.untyped_storage().size() == 0:
            tensor.untyped_storage().resize_(size.numel() * tensor.element_size())


def _free_storage(tensor: Any) -> None:
    """Gives a tensor's memory back."""
    with flambeau.no_grad():
        tensor.untyped_storage().resize_(0)
