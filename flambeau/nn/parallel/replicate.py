"""`replicate`: copies of a module for several devices whose parameters are computed from the original's."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.nn.parallel.scatter_gather import _device

__all__ = ["replicate"]


def replicate(network: Module, devices: Any, detach: bool = False) -> list[Module]:
    """A copy for each device; gradients of the copies reach the parameters of the original."""
    return [_copy(network, _device(device), detach, {}) for device in devices]


def _copy(module: Module, device: Any, detach: bool, seen: dict[int, Any]) -> Module:
    if id(module) in seen:
        return seen[id(module)]
    replica = module._replicate_for_data_parallel()
    seen[id(module)] = replica
    for name, child in module._modules.items():
        replica._modules[name] = None if child is None else _copy(child, device, detach, seen)
    for name, parameter in module._parameters.items():
        if parameter is None:
            replica._parameters[name] = None
            continue
        if id(parameter) not in seen:
            moved = parameter.to(device)
            seen[id(parameter)] = moved.detach() if detach else moved.view_as(moved) if moved is parameter else moved
        setattr(replica, name, seen[id(parameter)])  # a plain tensor: it has a history
    for name, buffer in module._buffers.items():
        replica._buffers[name] = None if buffer is None else buffer.to(device)
    return replica
