"""Mixed precision: operators in lower precision where that is safe (`autocast`), and scaled losses (`GradScaler`)."""

from flambeau.amp.autocast_mode import (
    _enter_autocast,  # noqa: F401
    _exit_autocast,  # noqa: F401
    autocast,
    custom_bwd,
    custom_fwd,
    is_autocast_available,
)
from flambeau.amp.grad_scaler import GradScaler

__all__ = ["autocast", "custom_bwd", "custom_fwd", "GradScaler", "is_autocast_available"]
