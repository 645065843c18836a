"""The CUDA interface on a build without CUDA: says so, and lets portable programs take their other branch.

Functions that only ask or tidy up answer as on a machine without a GPU; those that need one raise AssertionError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import _streams
from flambeau.cuda import amp

__all__ = ["amp", "is_available", "device_count"]

has_half = True
has_magma = False
default_generators: tuple[Any, ...] = ()


class OutOfMemoryError(RuntimeError):
    """Raised when a device has no memory left."""


CudaError = RuntimeError
DeferredCudaCallError = RuntimeError


def _missing() -> AssertionError:
    return AssertionError("[cuda] expected a CUDA device, got a machine or build without one")


# ---------------------------------------------------------------------------------------------- questions and no-ops


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def is_tf32_supported() -> bool:
    return False


def is_current_stream_capturing() -> bool:
    return False


def empty_cache() -> None: ...


def ipc_collect() -> None: ...


def manual_seed(seed: int) -> None: ...


def manual_seed_all(seed: int) -> None: ...


def seed() -> None: ...


def seed_all() -> None: ...


def get_arch_list() -> list[str]:
    return []


def get_rng_state_all() -> list[Any]:
    return []


def set_rng_state_all(new_states: Any) -> None: ...


def memory_allocated(device: Any = None) -> int:
    return 0


def memory_reserved(device: Any = None) -> int:
    return 0


memory_cached = max_memory_allocated = max_memory_reserved = max_memory_cached = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    return {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return ""


def reset_peak_memory_stats(device: Any = None) -> None: ...


reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats


def set_sync_debug_mode(debug_mode: int | str) -> None: ...


def get_sync_debug_mode() -> int:
    return 0


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return False


# ---------------------------------------------------------------------------------------------- what needs a device


def _needs_device(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise _missing()

    call.__name__ = call.__qualname__ = name
    return call


for _name in (
    "init current_device current_stream default_stream synchronize get_device_name get_device_capability "
    "get_device_properties mem_get_info get_rng_state set_rng_state set_per_process_memory_fraction initial_seed "
    "list_gpu_processes utilization temperature power_draw clock_rate current_blas_handle make_graphed_callables "
    "memory_snapshot caching_allocator_alloc caching_allocator_delete graph_pool_handle memory_usage cudart "
    "change_current_allocator get_allocator_backend"
).split():
    globals()[_name] = _needs_device(_name)


def set_device(device: Any) -> None:
    index = device if isinstance(device, int) else flambeau.device(device).index
    if index is not None and index >= 0:
        raise _missing()


class device:
    """A `with` block on another device; without CUDA only the index -1 or None is possible."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else device

    def __enter__(self) -> None:
        if self.idx != -1:
            raise _missing()

    def __exit__(self, *exception: Any) -> None: ...


class device_of(device):
    """The device of a tensor; nothing for a CPU tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class _Needs:
    """Base of the objects that exist on a device only."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _missing()


class Stream(_Needs, _streams.Stream):
    """A queue of work on a device."""


class ExternalStream(Stream):
    """A stream made elsewhere."""


class Event(_Needs, _streams.Event):
    """A mark in a stream."""


class CUDAGraph(_Needs):
    """Recorded work to be run again."""


class graph(_Needs):
    """A `with` block that records a graph."""


@contextlib.contextmanager
def stream(stream: Any) -> Iterator[None]:
    """Work on a stream inside a `with` block; None means nothing to change."""
    if stream is not None:
        raise _missing()
    yield


class StreamContext:
    """What `stream` returns."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: Any) -> None: ...


class MemPool(_Needs):
    """Memory of a device kept apart."""


class use_mem_pool(_Needs):
    """A `with` block that takes memory from a pool."""


class CUDAPluggableAllocator(_Needs):
    """An allocator from a shared library."""


class _LegacyType(type):
    """FloatTensor and the others: no tensor is one of them."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"[cuda] expected a CUDA device for {cls.__name__}, got a machine or build without one")

    def __instancecheck__(cls, instance: Any) -> bool:
        return False


for _name in "Double Float Half Long Int Short Char Byte Bool BFloat16".split():
    globals()[f"{_name}Tensor"] = _LegacyType(f"{_name}Tensor", (), {"__module__": __name__})


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
