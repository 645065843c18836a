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


class device_index:
    """A `with` block on another accelerator; None changes nothing."""

    def __init__(self, device: int | None) -> None:
        self.idx = device

    def __enter__(self) -> None:
        if self.idx is not None:
            _needs_device()

    def __exit__(self, *error: object) -> None: ...


def empty_cache() -> None: ...


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    return {}


def reset_peak_memory_stats(device: Any = None) -> None: ...


def reset_accumulated_memory_stats(device: Any = None) -> None: ...
