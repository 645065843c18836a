"""The older names of mixed precision on CUDA."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import flambeau as fl
from flambeau.amp import autocast as _autocast
from flambeau.amp import custom_bwd as _custom_bwd
from flambeau.amp import custom_fwd as _custom_fwd
from flambeau.amp.grad_scaler import GradScaler as _GradScaler
from flambeau.amp.grad_scaler import OptState

__all__ = ["autocast", "custom_bwd", "custom_fwd", "GradScaler", "OptState", "amp_definitely_not_available"]


def _deprecated(old: str, new: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{old}(args...)` is deprecated. Please use `torch.amp.{new}` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(_autocast):
    """`amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: fl.dtype = fl.float16, cache_enabled: bool = True) -> None:
        _deprecated("autocast", "autocast('cuda', args...)")
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(_GradScaler):
    """`amp.GradScaler("cuda", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _deprecated("GradScaler", "GradScaler('cuda', args...)")
        super().__init__("cuda", *args, **kwargs)


def custom_fwd(fwd: Any = None, *, cast_inputs: fl.dtype | None = None) -> Any:
    """`amp.custom_fwd(..., device_type="cuda")`."""
    _deprecated("custom_fwd", "custom_fwd(args..., device_type='cuda')")
    return functools.partial(_custom_fwd, device_type="cuda")(fwd=fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """`amp.custom_bwd(..., device_type="cuda")`."""
    _deprecated("custom_bwd", "custom_bwd(args..., device_type='cuda')")
    return _custom_bwd(bwd, device_type="cuda")


def amp_definitely_not_available() -> bool:
    return not fl.cuda.is_available()
