"""The interface of Apple's GPUs on machines without one: says so, and lets portable programs take their other branch."""

from __future__ import annotations

from typing import Any

__all__ = ["is_available", "device_count"]


def _missing() -> RuntimeError:
    return RuntimeError("[mps] expected a Metal device, got a machine or build without one")


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def synchronize() -> None:
    raise _missing()


def empty_cache() -> None: ...


def manual_seed(seed: int) -> None: ...


def seed() -> None: ...


def get_rng_state() -> Any:
    raise _missing()


def set_rng_state(new_state: Any) -> None:
    raise _missing()


def current_allocated_memory() -> int:
    return 0


def driver_allocated_memory() -> int:
    return 0


def recommended_max_memory() -> int:
    return 0


def set_per_process_memory_fraction(fraction: float) -> None:
    raise _missing()


def is_macos_or_newer(major: int, minor: int) -> bool:
    return False
