"""Definitions that read data, and recorders that run them on tensors without data.

A definition that computes only the shape on the meta device, because its real computation depends on values, asks
`without_data`. While a recorder runs, this raises: what it would record is not what the definition does on data.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class _State(threading.local):
    depth = 0
    # While a recorder listens: calls the derivative of an autograd.Function, derivative(ctx, *grads).
    derive: Callable[[Any, Any, tuple[Any, ...]], Any] | None = None
    device: str | None = None  # while a recorder listens: the type of device that tensors without data stand for


state = _State()


class DependsOnData(Exception):
    """What an operator does depends on values that are not there."""


class refused:
    """Inside the block, ways that depend on data are refused."""

    def __enter__(self) -> None:
        state.depth += 1

    def __exit__(self, *error: object) -> None:
        state.depth -= 1


def device_type(tensor: Any) -> str:
    """The type of device that a tensor is on, or that it stands for in what is recorded."""
    return state.device if state.device is not None and tensor.is_meta else str(tensor.device.type)


def without_data(op: str, *tensors: object) -> bool:
    """Whether one of the tensors is on the meta device; raises when that is only for the sake of a record."""
    if not any(getattr(t, "is_meta", False) for t in tensors):
        return False
    if state.depth:
        raise DependsOnData(f"[{op}] what it computes depends on the values of its input")
    return True
