"""The interface of an accelerator that this build does not serve."""

from __future__ import annotations

__all__ = ["is_available", "device_count", "is_initialized"]


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def empty_cache() -> None: ...


def manual_seed(seed: int) -> None: ...


def manual_seed_all(seed: int) -> None: ...
