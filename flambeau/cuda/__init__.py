"""CUDA devices: what there is, which one is current, and the parts of the interface by the names programs use.

On a machine or build without CUDA, functions that only ask or tidy up answer as on a machine without a GPU; those that
need one raise AssertionError.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import flambeau
from flambeau.cuda import _library


class OutOfMemoryError(RuntimeError):
    """Raised when a device has no memory left."""


from flambeau.cuda.graphs import (  # noqa: E402
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from flambeau.cuda.memory import *  # noqa: E402, F403
from flambeau.cuda.memory import max_memory_cached, memory_cached, reset_max_memory_allocated, reset_max_memory_cached  # noqa: E402
from flambeau.cuda.random import *  # noqa: E402, F403
from flambeau.cuda.streams import (  # noqa: E402
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = ["is_available", "device_count", "CUDAGraph", "graph", "graph_pool_handle", "make_graphed_callables",
           "is_current_stream_capturing", "Event", "ExternalStream", "Stream", "StreamContext", "current_stream",
           "default_stream", "set_stream", "stream", "max_memory_cached", "memory_cached", "reset_max_memory_allocated",
           "reset_max_memory_cached"]  # fmt: skip

has_half = True
has_magma = False

CudaError = RuntimeError
DeferredCudaCallError = RuntimeError


# ---------------------------------------------------------------------------------------------- devices


def is_available() -> bool:
    return _library.available()


def device_count() -> int:
    return int(_library.call("device_count")) if _library.available() else 0


def is_initialized() -> bool:
    return _library.available()


def init() -> None:
    if not _library.available():
        raise _library.missing()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return _library.available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    return _library.available() and get_device_capability()[0] >= 8


def current_device() -> int:
    return int(_library.call("current_device"))


def set_device(device: Any) -> None:
    index = device if isinstance(device, int) else flambeau.device(device).index
    if index is not None and index >= 0:
        _library.call("set_device", index)


def synchronize(device: Any = None) -> None:
    """Wait until all work on a device is done."""
    _library.call("synchronize", _library.index_of(device))


# As flcuda_properties fills them.
_PROPERTIES = (
    "major minor total_memory multi_processor_count L2_cache_size max_threads_per_multi_processor shared_memory_per_block "
    "shared_memory_per_block_optin shared_memory_per_multiprocessor warp_size regs_per_multiprocessor is_integrated "
    "is_multi_gpu_board max_threads_per_block pci_bus_id pci_device_id pci_domain_id"
).split()


@functools.cache
def _properties(index: int) -> Any:
    import ctypes

    name = ctypes.create_string_buffer(256)
    values = _library.numbers("properties", index, len(_PROPERTIES), name)
    return SimpleNamespace(name=name.value.decode(), **dict(zip(_PROPERTIES, values)))


def get_device_properties(device: Any = None) -> Any:
    index = _library.index_of(device)
    if not 0 <= index < device_count():
        raise AssertionError(f"[get_device_properties] expected one of {device_count()} devices, got {index}")
    return _properties(index)


def get_device_name(device: Any = None) -> str:
    return str(get_device_properties(device).name)


def get_device_capability(device: Any = None) -> tuple[int, int]:
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    return ["sm_80", "sm_90"] if _library.available() else []


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    if not _library.available():
        return False
    return bool(_library.call("can_access_peer", _library.index_of(device), _library.index_of(peer_device)))


def ipc_collect() -> None: ...


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Waits for the device are not reported: only the default, which is silence, is taken."""
    if debug_mode not in (0, "default"):
        raise NotImplementedError(f"[set_sync_debug_mode] expected 0 or 'default', got {debug_mode!r}")


def get_sync_debug_mode() -> int:
    return 0


class device:
    """A `with` block on another device; an index of -1 or None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else device if isinstance(device, int) else _library.index_of(device)

    def __enter__(self) -> None:
        if self.idx != -1:
            self.before = current_device()
            set_device(self.idx)

    def __exit__(self, *exception: Any) -> None:
        if self.idx != -1:
            set_device(self.before)


class device_of(device):
    """The device of a tensor; nothing for a CPU tensor."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_cuda else -1)


# ---------------------------------------------------------------------------------------------- what is not there


def _unsupported(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not _library.available():
            raise _library.missing()
        raise NotImplementedError(f"[cuda.{name}] expected a function that flambeau has, got one that it lacks")

    call.__name__ = call.__qualname__ = name
    return call


for _name in (
    "list_gpu_processes utilization temperature power_draw clock_rate current_blas_handle memory_usage cudart "
    "change_current_allocator"
).split():
    globals()[_name] = _unsupported(_name)


class _Needs:
    """Base of the objects that are not there yet."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise _library.missing()


class MemPool(_Needs):
    """Memory of a device kept apart."""


class use_mem_pool(_Needs):
    """A `with` block that takes memory from a pool."""


class CUDAPluggableAllocator(_Needs):
    """An allocator from a shared library."""


class _LegacyType(type):
    """FloatTensor and the others: CUDA tensors of a dtype."""

    dtype: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not _library.available():
            raise TypeError(f"[cuda] expected a CUDA device for {cls.__name__}, got a machine or build without one")
        if args and not isinstance(args[0], int):
            return flambeau.tensor(args[0], dtype=cls.dtype, device="cuda")
        return flambeau.empty(args, dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, flambeau.Tensor) and instance.is_cuda and instance.dtype is cls.dtype


for _name in "double float half long int short char byte bool bfloat16".split():
    _title = {"byte": "Byte", "char": "Char", "bfloat16": "BFloat16"}.get(_name, _name.title())
    _dtype = {"byte": "uint8", "char": "int8"}.get(_name, _name)
    globals()[f"{_title}Tensor"] = _LegacyType(
        f"{_title}Tensor", (), {"__module__": __name__, "dtype": getattr(flambeau, _dtype)}
    )


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return (flambeau._C._default_generator("cuda"),) if _library.available() else ()
    if not name.startswith("__"):
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
