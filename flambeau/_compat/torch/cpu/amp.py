"""The older names of mixed precision on the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import flambeau as fl
from flambeau.amp import autocast as _autocast
from flambeau.amp.grad_scaler import GradScaler as _GradScaler

__all__ = ["autocast", "GradScaler"]


class autocast(_autocast):
    """`amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: fl.dtype = fl.bfloat16, cache_enabled: bool = True) -> None:
        warnings.warn(
            "`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler("cpu", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`torch.cpu.amp.GradScaler(args...)` is deprecated. Please use `torch.amp.GradScaler('cpu', args...)` "
            "instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", *args, **kwargs)
