"""`parallel_apply`: several modules, each called with inputs of its own."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module

__all__ = ["parallel_apply"]


def parallel_apply(modules: list[Module], inputs: list[Any], kwargs_tup: Any = None, devices: Any = None) -> list[Any]:
    """The results of the modules. They are called one after the other; devices that compute by themselves overlap."""
    if len(modules) != len(inputs):
        raise AssertionError(
            f"[parallel_apply] expected as many inputs as modules, got {len(inputs)} and {len(modules)}"
        )
    named = kwargs_tup or [{}] * len(modules)
    return [m(*(i if isinstance(i, (list, tuple)) else (i,)), **k) for m, i, k in zip(modules, inputs, named)]
