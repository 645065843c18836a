"""What describes nodes of traced models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["NodeInfo"]


class NodeInfo(NamedTuple):
    """What a node does: its kind, and the function, method or class that it calls."""

    op: str
    target: Callable[..., Any] | str
