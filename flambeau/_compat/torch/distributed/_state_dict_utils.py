"""State dicts with distributed tensors: gathered, copied to the host's memory, and into others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed import _groups
from flambeau.distributed.tensor import DTensor

__all__: list[str] = []


class CompanionMismatch(Exception):
    """Two state dicts are not of one structure."""


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """The structure with `change` of each of its tensors."""
    if isinstance(value, flambeau.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _map(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, change) for item in value)
    return value


def _kept_here(ranks_only: tuple[int, ...]) -> bool:
    return not ranks_only or _groups.get_rank() in ranks_only


def _to_host(tensor: Any) -> Any:
    return tensor if tensor.device.type == "cpu" else tensor.cpu()


@flambeau.no_grad()
def _gather_state_dict(
    state_dict: dict[str, Any],
    *,
    pg: Any = None,
    device: Any = None,
    cpu_offload: bool = False,
    ranks_only: tuple[int, ...] = (),
    type_check: bool = True,
) -> dict[str, Any]:
    """Whole tensors in place of distributed ones; on ranks other than `ranks_only` nothing."""

    def gathered(tensor: Any) -> Any:
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        return _to_host(whole) if cpu_offload else whole

    whole = _map(state_dict, gathered)
    return whole if _kept_here(ranks_only) else {}


@flambeau.no_grad()
def _offload_state_dict_to_cpu(
    state_dict: dict[str, Any], *, ranks_only: tuple[int, ...] = (), type_check: bool = True
) -> dict[str, Any]:
    return _map(state_dict, _to_host) if _kept_here(ranks_only) else {}


@flambeau.no_grad()
def _copy_state_dict(
    state_dict: dict[str, Any], copy_state_dict: dict[str, Any], non_blocking: bool = False, type_check: bool = True
) -> dict[str, Any]:
    """Copies tensors into those of a state dict of the same structure."""

    def copied(value: Any, target: Any) -> Any:
        if isinstance(value, flambeau.Tensor):
            return target.copy_(value, non_blocking=non_blocking)
        if isinstance(value, dict):
            if not isinstance(target, dict) or set(value) != set(target):
                raise CompanionMismatch(f"[_copy_state_dict] expected the keys {sorted(value)}, got {target}")
            return {key: copied(item, target[key]) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            if len(value) != len(target):
                raise CompanionMismatch(f"[_copy_state_dict] expected {len(value)} items, got {len(target)}")
            return type(value)(copied(a, b) for a, b in zip(value, target))
        return value

    return copied(state_dict, copy_state_dict)


@flambeau.no_grad()
def _create_cpu_state_dict(
    state_dict: dict[str, Any], pin_memory: bool = False, share_memory: bool = False
) -> dict[str, Any]:
    """A state dict of the same structure with new tensors in the memory of the host."""

    def fresh(tensor: Any) -> Any:
        if isinstance(tensor, DTensor):
            host = tensor.detach().clone() if tensor.device.type == "cpu" else tensor.cpu()
            host._local_tensor = fresh(tensor._local_tensor)
            return host
        memory = flambeau.empty(tuple(tensor.shape), dtype=tensor.dtype)
        if share_memory:
            return memory.share_memory_()
        return memory.pin_memory() if pin_memory and flambeau.cuda.is_available() else memory

    return _map(state_dict, fresh)


def _check_state_dict_similarity(state_dict: dict[str, Any], compared_state_dict: dict[str, Any]) -> bool:
    """Whether two state dicts have the same structure, and tensors of the same shapes and dtypes."""

    def alike(a: Any, b: Any) -> bool:
        if isinstance(a, flambeau.Tensor):
            return isinstance(b, flambeau.Tensor) and a.shape == b.shape and a.dtype == b.dtype
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
        if isinstance(a, (list, tuple)):
            return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
        return bool(a == b)

    return alike(state_dict, compared_state_dict)


def _flatten_state_dict(state_dict: dict[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict

    return flatten_state_dict(state_dict)


def _unflatten_state_dict(state_dict: dict[str, Any], mapping: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    from flambeau.distributed.checkpoint._nested_dict import unflatten_state_dict

    return unflatten_state_dict(state_dict, mapping)
