"""Giving a value in traced code a type."""

from __future__ import annotations

from typing import Any

from flambeau.fx.proxy import Proxy


def annotate(val: Any, type: Any) -> Any:
    """The value itself; on a proxy, its node gets the type."""
    if isinstance(val, Proxy):
        if val.node.type is not None:
            raise TypeError(f"[annotate] expected a value without a type, got {val.node.name} of type {val.node.type}")
        val.node.type = type
    return val
