"""The machine's accelerator, whichever it is: a CUDA device where there is one, else a registered device that is one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

__all__ = [
    "current_accelerator", "current_device_idx", "current_device_index", "current_stream", "device_count",
    "device_index", "empty_cache", "get_memory_info", "is_available", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats",
    "reset_peak_memory_stats", "set_device_idx", "set_device_index", "set_stream", "synchronize",
]  # fmt: skip


class _Needs:
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls.__module__ == __name__ and is_available():
            return getattr(_module(cls.__name__), cls.__name__)(*args, **kwargs)
        raise RuntimeError(f"[{cls.__name__}] expected an accelerator, got a machine or build without one")


class Stream(_Needs):
    """A queue of work on a device. The streams of each kind of device derive from it."""


class Event(_Needs):
    """A mark in a stream."""


def _cuda() -> ModuleType:
    from flambeau import cuda

    return cuda


def _outside() -> Any:
    """The registered device that is the accelerator, or None."""
    import sys

    backends = sys.modules.get("flambeau.backends")
    known = list(backends.registered.values()) if backends is not None else []
    return next((device for device in known if device.accelerator), None)


def _module(function: str) -> ModuleType:
    """The module of the accelerator, or the error of a machine that has none."""
    if _cuda().is_available():
        return _cuda()
    outside = _outside()
    if outside is None:
        raise RuntimeError(f"[accelerator.{function}] expected an accelerator, got none on this machine")
    return outside.module


def is_available() -> bool:
    return bool(_cuda().is_available()) or _outside() is not None


def device_count() -> int:
    if _cuda().is_available():
        return int(_cuda().device_count())
    outside = _outside()
    return int(outside.module.device_count()) if outside is not None else 0


def current_accelerator(check_available: bool = False) -> Any:
    """The kind of accelerator, as a device without an index; None on a machine without one."""
    from flambeau import device

    if _cuda().is_available():
        return device("cuda")
    outside = _outside()
    return device(outside.name) if outside is not None else None


def current_device_index() -> int:
    return int(_module("current_device_index").current_device())


def set_device_index(device: Any, /) -> None:
    _module("set_device_index").set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


def current_stream(device: Any = None, /) -> Stream:
    return _module("current_stream").current_stream(device)


def set_stream(stream: Stream) -> None:
    _module("set_stream").set_stream(stream)


def synchronize(device: Any = None, /) -> None:
    """Wait until all work on a device is done."""
    _module("synchronize").synchronize(device)


class device_index:
    """A `with` block on another accelerator; None changes nothing."""

    def __init__(self, device: int | None, /) -> None:
        self.idx = device

    def __enter__(self) -> None:
        if self.idx is not None:
            self.before = current_device_index()
            set_device_index(self.idx)

    def __exit__(self, *error: object) -> None:
        if self.idx is not None:
            set_device_index(self.before)


def empty_cache() -> None:
    """Give memory that is held and not in use back to the system."""
    _module("empty_cache").empty_cache()


def get_memory_info(device_index: Any = None, /) -> tuple[int, int]:
    """Free and total memory of a device, in bytes."""
    return _module("get_memory_info").mem_get_info(device_index)


def memory_stats(device_index: Any = None, /) -> dict[str, Any]:
    return _module("memory_stats").memory_stats(device_index)


def memory_allocated(device_index: Any = None, /) -> int:
    return _module("memory_allocated").memory_allocated(device_index)


def max_memory_allocated(device_index: Any = None, /) -> int:
    return _module("max_memory_allocated").max_memory_allocated(device_index)


def memory_reserved(device_index: Any = None, /) -> int:
    return _module("memory_reserved").memory_reserved(device_index)


def max_memory_reserved(device_index: Any = None, /) -> int:
    return _module("max_memory_reserved").max_memory_reserved(device_index)


def reset_peak_memory_stats(device_index: Any = None, /) -> None:
    _module("reset_peak_memory_stats").reset_peak_memory_stats(device_index)


def reset_accumulated_memory_stats(device_index: Any = None, /) -> None:
    _module("reset_accumulated_memory_stats").reset_accumulated_memory_stats(device_index)
