"""The module in which PyTorch keeps `while_loop`."""

from __future__ import annotations

from flambeau._misc import while_loop

__all__ = ["while_loop"]
