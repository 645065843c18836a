"""The C functions of libflambeau_cuda, for what is not on the path of an operator: devices, streams, events, graphs.

`call(name, ...)` calls `flcuda_<name>`; functions that can fail return a status, which becomes an exception.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

from flambeau import _C

_handle, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_out, _numbers = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
_flag = ctypes.POINTER(ctypes.c_int)

# name -> (what it returns, arguments); "status" is checked.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "error": (ctypes.c_char_p, ()),
    "built_with": (_int, ()),
    "device_count": (_int, ()),
    "current_device": (_int, ()),
    "set_device": ("status", (_int,)),
    "properties": ("status", (_int, ctypes.c_char_p, _numbers)),
    "memory_info": ("status", (_int, _numbers)),
    "can_access_peer": (_int, (_int, _int)),
    "synchronize": ("status", (_int,)),
    "profile": ("status", (_int,)),
    "stream_create": ("status", (_int, _int, _out)),
    "current_stream": (_handle, (_int,)),
    "set_stream": (None, (_int, _handle)),
    "stream_query": ("status", (_handle, _flag)),
    "stream_synchronize": ("status", (_handle,)),
    "stream_capturing": (_int, (_handle,)),
    "event_create": ("status", (_int, _int, _int, _out)),
    "event_destroy": (None, (_handle,)),
    "event_record": ("status", (_handle, _handle)),
    "event_wait": ("status", (_handle, _handle)),
    "event_query": ("status", (_handle, _flag)),
    "event_synchronize": ("status", (_handle,)),
    "event_elapsed": ("status", (_handle, _handle, ctypes.POINTER(ctypes.c_float))),
    "allocate": (_handle, (_long, _int, _handle)),
    "free": (None, (_handle, _int)),
    "record_stream": (None, (_handle, _int, _handle)),
    "empty_cache": (None, ()),
    "statistics": (None, (_int, _numbers)),
    "reset_peak": (None, (_int,)),
    "limit": (None, (_int, _long)),
    "snapshot": (ctypes.c_char_p, (_int,)),
    "graph_begin": ("status", (_int, _handle, ctypes.c_uint64, _int)),
    "graph_end": ("status", (_int, _handle, _out, _out)),
    "graph_launch": ("status", (_handle, _handle)),
    "graph_destroy": (None, (_int, _handle, _handle)),
    "release_pool": (None, (_int, ctypes.c_uint64)),
    "failure_flag": (_handle, ()),
    "activity_start": (_int, ()),
    "activity_stop": (ctypes.c_char_p, ()),
    "set_tf32": (None, (_int,)),
    "cudnn_version": (_long, ()),
    "set_convolution_tf32": (None, (_int,)),
    "set_convolution_deterministic": (None, (_int,)),
    "load": ("status", (ctypes.c_char_p, ctypes.c_char_p, _int, _out)),
    "launch": ("status", (_handle, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint), ctypes.c_uint, _handle, _out)),
}  # fmt: skip


def missing() -> AssertionError:
    return AssertionError(
        "[cuda] expected a CUDA device, got a machine or build without one: Torch not compiled with CUDA enabled"
    )


@functools.cache
def available() -> bool:
    return bool(_C._accelerator()[0] > 0)


def library_path() -> str:
    """The library that the core has opened: see `library_path` in `csrc/core/accelerator.cpp`."""
    beside = Path(_C.__file__).parent / "libflambeau_cuda.so"
    packaged = Path(_C.__file__).parent.parent / "flambeau_cuda" / beside.name
    return os.environ.get("FLAMBEAU_CUDA_LIB") or str(beside if beside.exists() else packaged)


@functools.cache
def _library() -> ctypes.CDLL:
    if not available():
        raise missing()
    return ctypes.CDLL(library_path())


@functools.cache
def _function(name: str) -> Any:
    returns, arguments = _FUNCTIONS[name]
    function = getattr(_library(), f"flcuda_{name}")
    function.argtypes = arguments
    function.restype = _int if returns == "status" else returns
    return function


def call(name: str, *args: Any) -> Any:
    result = _function(name)(*args)
    if _FUNCTIONS[name][0] != "status":
        return result
    if result:
        text = _function("error")().decode()
        if result == 2:
            from flambeau.cuda import OutOfMemoryError

            raise OutOfMemoryError(text)
        raise IndexError(text) if result == 3 else RuntimeError(text)
    return None


def made(name: str, *args: Any) -> int:
    """A function whose last argument is where to put a handle."""
    handle = ctypes.c_void_p()
    call(name, *args, ctypes.byref(handle))
    return handle.value or 0


def asked(name: str, *args: Any) -> bool:
    """A function whose last argument is where to put a flag."""
    flag = ctypes.c_int()
    call(name, *args, ctypes.byref(flag))
    return bool(flag.value)


def numbers(name: str, device: int, count: int, *before: Any) -> list[int]:
    """A function that fills an array of numbers."""
    values = (ctypes.c_int64 * count)()
    call(name, device, *before, values)
    return list(values)


def index_of(device: Any) -> int:
    """The index that a device argument (None, an int, a string, a device) means."""
    if device is None:
        return int(call("current_device"))
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    import flambeau

    device = flambeau.device(device)
    if device.type != "cuda":
        raise ValueError(f"[cuda] expected a CUDA device, got {device}")
    return int(call("current_device")) if device.index is None else int(device.index)


def load(image: bytes, function: str, shared: int = 0) -> int:
    """The handle of a function of a compiled module (cubin or PTX); `shared`: dynamic shared memory of its launches."""
    return made("load", image, function.encode(), shared)
