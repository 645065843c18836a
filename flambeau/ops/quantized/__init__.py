"""Operators on quantized numbers: integers that stand for `(i - zero_point) * scale`."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Functions of quantized tensors, which are written above the operators: `ops.quantized.add`."""
    from importlib.util import find_spec

    if name.startswith("_") or find_spec(f"{__name__}.{name}"):  # `from` statements go on to the module of that name
        raise AttributeError(name)
    from flambeau import _ops

    return getattr(_ops.namespace("quantized"), name)
