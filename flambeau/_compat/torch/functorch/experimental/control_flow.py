"""`functorch.experimental.control_flow`: the operators that take functions, under their former names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {"cond": "", "map": "_higher_order_ops.map", "while_loop": "_higher_order_ops.while_loop"}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return getattr(import_module("flambeau." + home if home else "flambeau"), name)
