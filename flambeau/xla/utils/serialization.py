"""Saving and loading of the device's tensors, as tensors of the host."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.xla.core import xla_model

__all__ = ["load", "save"]


def save(data: Any, path: str, master_only: bool = True, global_master: bool = False) -> None:
    xla_model.save(data, path, master_only, global_master)


def load(path: str) -> Any:
    """What `save` wrote, on the host."""
    return fl.load(path)
