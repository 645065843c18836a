"""Intel GPUs, which are not supported: answers as on a machine without one."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def empty_cache() -> None: ...


def manual_seed(seed: int) -> None: ...


def manual_seed_all(seed: int) -> None: ...


def memory_allocated(device: Any = None) -> int:
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated


def _needs_device(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("[xpu] expected an Intel GPU, got a build without support for them")


current_device = set_device = synchronize = current_stream = get_device_properties = get_device_name = _needs_device
get_device_capability = mem_get_info = get_rng_state = set_rng_state = Stream = Event = _needs_device
init = device = device_of = stream = _needs_device


def get_rng_state_all() -> list[Any]:
    return []


def set_rng_state_all(new_states: Any) -> None: ...


def reset_peak_memory_stats(device: Any = None) -> None: ...
