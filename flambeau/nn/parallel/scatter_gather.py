"""Batches in parts: `scatter` divides what a program passes around among devices, `gather` puts results together."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor

__all__ = ["gather", "is_namedtuple", "scatter", "scatter_kwargs"]


def is_namedtuple(obj: Any) -> bool:
    return isinstance(obj, tuple) and hasattr(obj, "_asdict") and hasattr(obj, "_fields")


def _device(target: Any) -> Any:
    return (
        fl.device("cuda", target)
        if isinstance(target, int) and target >= 0
        else fl.device("cpu" if target == -1 else target)
    )


def _rebuilt(like: Any, parts: list[Any]) -> Any:
    return type(like)(*parts) if is_namedtuple(like) else type(like)(parts)


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> list[Any]:
    """One copy of the structure for each device; tensors are divided along dim, everything else is repeated."""
    devices = [_device(target) for target in target_gpus]

    def divide(value: Any) -> list[Any]:
        if isinstance(value, Tensor):
            return [part.to(device) for part, device in zip(value.chunk(len(devices), dim), devices)]
        if isinstance(value, (tuple, list)) and value:
            return [_rebuilt(value, list(parts)) for parts in zip(*map(divide, value))]
        if isinstance(value, dict) and value:
            return [type(value)(items) for items in zip(*map(divide, value.items()))]
        return [value for _ in devices]

    return divide(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Any, dim: int = 0
) -> tuple[Any, Any]:
    """Both kinds of arguments, divided alike."""
    positional = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    count = max(len(positional), len(named))
    positional += [()] * (count - len(positional))
    named += [{}] * (count - len(named))
    return tuple(positional), tuple(named)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The results of all devices as one, with tensors joined along dim on the target."""
    device = _device(target_device)
    first = outputs[0]
    if isinstance(first, Tensor):
        return fl.cat([part.to(device).reshape(1) if part.dim() == 0 else part.to(device) for part in outputs], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(len(part) != len(first) for part in outputs):
            raise ValueError("[gather] expected dicts with the same keys, got different ones")
        return type(first)((key, gather([part[key] for part in outputs], target_device, dim)) for key in first)
    return _rebuilt(first, [gather(list(parts), target_device, dim) for parts in zip(*outputs)])
