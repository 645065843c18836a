"""The CPU as a device, with the functions of the other devices' modules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau.cpu import amp

__all__ = ["amp", "is_available", "synchronize", "current_device", "device_count", "stream", "Stream"]


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device: Any) -> None: ...


def synchronize(device: Any = None) -> None: ...


def is_initialized() -> bool:
    return True


class Stream:
    """Work on the CPU is done when a call returns: a stream has nothing to wait for."""

    def __init__(self, priority: int = -1) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...


def current_stream(device: Any = None) -> Stream:
    return Stream()


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    yield


def get_capabilities() -> dict[str, Any]:
    return {"cpu_capability": flambeau.backends.cpu.get_cpu_capability()}
