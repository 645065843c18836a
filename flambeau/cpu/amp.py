"""The older names of mixed precision on the CPU."""

from __future__ import annotations

from typing import Any

import flambeau


def __getattr__(name: str) -> Any:
    if name in ("autocast", "GradScaler", "custom_fwd", "custom_bwd"):
        return getattr(flambeau.amp, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
