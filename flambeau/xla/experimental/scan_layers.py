"""`scan_layers`: layers of one kind, applied one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["scan_layers"]


def scan_layers(layers: Iterable[Any], input_data: Any, partition_fn: Any = None, is_layer_pure: bool = False) -> Any:
    """The last layer's result; layers may take and return several values."""
    value = input_data
    for layer in layers:
        value = layer(*value) if isinstance(value, tuple) else layer(value)
    return value
