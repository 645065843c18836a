"""The machine's accelerator, whichever it is: none so far."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def current_accelerator(check_available: bool = False) -> Any:
    return None


def _needs_device(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("[accelerator] expected an accelerator, got none on this machine")


current_device_index = set_device_index = current_device_idx = set_device_idx = current_stream = set_stream = (
    _needs_device
)


def synchronize(device: Any = None) -> None:
    _needs_device()
