"""Modules with quantized weights; `dynamic` holds those that can be run."""

from __future__ import annotations

from typing import Any

from flambeau import _absent


def __getattr__(name: str) -> Any:
    return _absent.attribute(__name__, name)
