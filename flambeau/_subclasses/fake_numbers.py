"""Symbolic numbers among the arguments of a call, at any depth of containers: what they are, and whose."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt, hint_of
from flambeau.ops.symbolic.shape_env import ShapeEnv


def hinted(value: Any) -> Any:
    """Arguments with the numbers of the hints in place of symbolic ones."""
    cls = type(value)
    if cls is SymInt or cls is SymFloat or cls is SymBool:
        return hint_of(value)
    if cls is slice:
        return slice(hinted(value.start), hinted(value.stop), hinted(value.step))
    if isinstance(value, (list, tuple)) and cls is not fl.Size:
        items = [hinted(v) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    if cls is dict:
        return {k: hinted(v) for k, v in value.items()}
    return value


def env_of(value: Any) -> ShapeEnv | None:
    """The environment of the first symbolic number."""
    if isinstance(value, (SymInt, SymFloat, SymBool)):
        return value.env
    if isinstance(value, (list, tuple)):
        for item in value:
            env = env_of(item)
            if env is not None:
                return env
    elif isinstance(value, dict):
        return env_of(list(value.values()))
    elif isinstance(value, slice):
        return env_of((value.start, value.stop, value.step))
    return None


def number_first(name: str, number: Any, tensor: Any) -> Any:
    """An operator with a symbolic number on the left, as `n - t`, by operators that take the number second; or None."""
    if name in ("add", "mul"):
        return getattr(tensor, name)(number)
    if name == "sub":
        return fl.rsub(tensor, number)
    if name == "div":
        return tensor.reciprocal() * number
    return getattr(fl, name)(number, tensor) if name in ("pow", "remainder") else None
