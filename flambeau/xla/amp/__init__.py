"""Mixed precision under the names of torch_xla.amp."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import optim as syncfree  # steps never read values on the host
from flambeau.amp import GradScaler

__all__ = ["GradScaler", "autocast", "syncfree"]


def autocast(device: Any = "xla", enabled: bool = True, dtype: Any = fl.bfloat16, cache_enabled: bool = True) -> Any:
    """Mixed precision on the XLA device."""
    return fl.autocast(fl.device(device).type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
