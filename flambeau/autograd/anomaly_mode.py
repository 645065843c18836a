"""Anomaly detection: errors in backward show where the forward operation was called, and NaN gradients are errors."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

from flambeau import _C

__all__ = ["detect_anomaly", "set_detect_anomaly"]


def _trace() -> str:
    """Where the user is now, for a node made now."""
    frames = [f for f in traceback.extract_stack() if "/flambeau/autograd/" not in f.filename.replace("\\", "/")]
    return "".join(traceback.format_list(frames))


def _report(name_and_trace: tuple[str, str]) -> None:
    name, trace = name_and_trace
    if trace:
        warnings.warn(
            f"Error detected in {name}. Traceback of forward call that caused the error:\n{trace}", stacklevel=3
        )
    else:
        warnings.warn(
            f"Error detected in {name}. No forward pass information available. Enable detect anomaly during forward "
            "pass "
            "for more information.",
            stacklevel=3,
        )


class set_detect_anomaly:
    """Turns anomaly detection on or off: at once as a function, and until the end of the block as a context manager.

    Where a derivative has NaN, the error names the operator; `check_nan=False` leaves that out and keeps the
    traceback of the forward call.

    >>> with flambeau.autograd.set_detect_anomaly(True):
    ...     (flambeau.ones(2, requires_grad=True) * 3).sum().backward()
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        if not isinstance(mode, bool):
            raise TypeError(f"[set_detect_anomaly] expected a bool, got {type(mode).__name__}")
        self.prev = _C._get_anomaly_mode()
        _C._set_anomaly_mode(mode, check_nan)

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None:
        _C._set_anomaly_mode(*self.prev)


class detect_anomaly(set_detect_anomaly):
    """Anomaly detection for a block of code, forward and backward. Slow: for debugging only.

    >>> with flambeau.autograd.detect_anomaly():
    ...     (flambeau.ones(2, requires_grad=True) * 3).sum().backward()
    """

    def __init__(self, check_nan: bool = True) -> None:
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )
        self.prev = _C._get_anomaly_mode()
        self.check_nan = check_nan

    def __enter__(self) -> None:
        self.prev = _C._get_anomaly_mode()
        _C._set_anomaly_mode(True, self.check_nan)
