"""Host memory that a device from outside reads directly: page-locked by the device's own functions.

A device registers `pin(address, bytes)` and `unpin(address, bytes)`; one that brings none needs nothing done to host memory.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import flambeau as fl
from flambeau.backends import registered

__all__ = ["is_pinned", "pin"]


def _device(device: Any) -> Any:
    """The registered device that memory is pinned for."""
    chosen = fl.accelerator.current_accelerator() if device is None else fl.device(device)
    if chosen is None or chosen.type not in registered:
        raise RuntimeError(f"[pin_memory] expected an accelerator, got {chosen or 'none on this machine'}")
    return registered[chosen.type]


def pin(tensor: Any, device: Any = None) -> Any:
    """The tensor in host memory that the device has locked; itself where it lies there."""
    owner = _device(device)
    if tensor.device.type != "cpu":
        raise RuntimeError(f"[pin_memory] expected a CPU tensor, got one on {tensor.device}")
    if is_pinned(tensor, device):
        return tensor
    size = max(tensor.numel() * tensor.itemsize, 1)
    block = type("PinnedBlock", (ctypes.c_uint8 * size,), {})()  # a class of its own can be referred to weakly
    address = ctypes.addressof(block)
    if owner.pin is not None:
        owner.pin(address, size)
    owner.pinned[address] = size
    weakref.finalize(block, _release, owner, address, size)
    memory = fl.frombuffer(block, dtype=fl.uint8)[: tensor.numel() * tensor.itemsize]
    if tensor.numel() == 0:
        return fl.empty_like(tensor)
    dense = fl.empty_like(tensor, device="meta")  # its strides
    return memory.view(tensor.dtype).as_strided(dense.shape, dense.stride()).copy_(tensor)


def _release(owner: Any, address: int, size: int) -> None:
    del owner.pinned[address]
    if owner.unpin is not None:
        owner.unpin(address, size)


def is_pinned(tensor: Any, device: Any = None) -> bool:
    """Whether the tensor lies in host memory that the device has locked."""
    if tensor.device.type != "cpu" or tensor.numel() == 0:
        return False
    address = tensor.data_ptr()
    return any(begin <= address < begin + size for begin, size in list(_device(device).pinned.items()))
