"""FLAMBEAU_LOGS (and TORCH_LOGS): which artifacts of compilation are written to stderr."""

from __future__ import annotations

import os
import sys

_enabled: set[str] | None = None


def _read() -> set[str]:
    names: set[str] = set()
    for variable in ("FLAMBEAU_LOGS", "TORCH_LOGS"):
        for name in os.environ.get(variable, "").split(","):
            if name.strip():
                names.add(name.strip().lstrip("+"))
    return names


def enabled(name: str) -> bool:
    global _enabled
    if _enabled is None:
        _enabled = _read()
    return name in _enabled or "dynamo" in _enabled or "all" in _enabled


def set_logs(*names: str, **flags: bool) -> None:
    """Turns logs on by name; without names, all off."""
    global _enabled
    _enabled = set(names) | {name for name, on in flags.items() if on}


def log(name: str, text: str) -> None:
    if enabled(name):
        print(f"[{name}] {text}", file=sys.stderr)
