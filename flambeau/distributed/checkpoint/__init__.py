"""Checkpoints of programs for several processes. State dicts by full names work; writing them in parts is not written."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from flambeau import _absent

    return _absent.attribute(__name__, name)
