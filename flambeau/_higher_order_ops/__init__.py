"""Functions of functions, under the names that PyTorch has for them: branches, loops and scans."""

from __future__ import annotations

from typing import Any

from flambeau._higher_order_ops.associative_scan import associative_scan
from flambeau._higher_order_ops.map import map
from flambeau._higher_order_ops.scan import scan
from flambeau._higher_order_ops.while_loop import while_loop
from flambeau._misc import cond

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]


def __getattr__(name: str) -> Any:
    from flambeau import _absent

    return _absent.attribute(__name__, name)
