"""The names of `ao.nn.quantized` where older programs look for them."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from flambeau.ao.nn import quantized as home

    return getattr(home, name)
