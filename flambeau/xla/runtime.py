"""The functions of torch_xla.runtime: one process with one device."""

from __future__ import annotations

from typing import Any

__all__ = [
    "addressable_device_count", "addressable_runtime_device_count", "device_type", "global_device_count", "global_ordinal",
    "get_master_ip", "global_device_attributes", "global_runtime_device_attributes", "global_runtime_device_count", "host_index", "initialize_cache", "is_spmd", "local_device_count", "local_ordinal",
    "local_process_count", "process_count", "process_index", "runtime_device_attributes", "set_device_type", "use_spmd", "using_pjrt", "world_size", "xla_device",
]  # fmt: skip


def world_size() -> int:
    return 1


def global_ordinal() -> int:
    return 0


def local_ordinal() -> int:
    return 0


def process_index() -> int:
    return 0


def process_count() -> int:
    return 1


local_process_count = process_count


def global_device_count() -> int:
    return 1


global_runtime_device_count = global_device_count
local_device_count = addressable_device_count = addressable_runtime_device_count = global_device_count


def global_runtime_device_attributes() -> list[dict[str, object]]:
    """What is known of each device."""
    return [{"name": f"{device_type()}:0"}]


def runtime_device_attributes(device: str) -> dict[str, object]:
    return global_runtime_device_attributes()[0]


global_device_attributes = global_runtime_device_attributes


def host_index() -> int:
    return 0


def get_master_ip() -> str:
    return "127.0.0.1"


def xla_device(n: int | None = None, devkind: str | None = None) -> Any:
    from flambeau import xla

    return xla.device(n)


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Keeps compiled programs in a folder, so that other processes find them."""
    from flambeau.xla import engine

    engine.keep_programs(path, readonly)


def device_type() -> str:
    """The kind of hardware, as the client calls it."""
    from flambeau.xla import engine

    return engine.platform().upper()


def set_device_type(pjrt_device: str) -> None:
    """Asks for a kind of hardware by name; the client that is there has to be of it."""
    from flambeau.xla import engine

    if pjrt_device.upper() != engine.platform().upper():
        raise ValueError(f"[xla.set_device_type] expected {engine.platform().upper()!r}, got {pjrt_device!r}")


def using_pjrt() -> bool:
    return True


def use_spmd(auto: bool = False) -> None:
    """Shardings over one device change nothing."""


def is_spmd() -> bool:
    return False
