"""OpenCL: the first device of the platform, or the one that FLAMBEAU_OPENCL names, through pyopencl.

Memory is shared virtual memory (OpenCL 2.0), so that addresses are addresses; blocks are kept and used again. Kernels are
printed by `flambeau.backends.printer`, built once for each source, and kept on disk by the driver's own cache and here as
binaries. Importing this module registers the device `opencl`; it raises ImportError where pyopencl or a driver is missing.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flambeau as fl
from flambeau.backends import register_device
from flambeau.backends.printer import KernelPrinter

try:
    import pyopencl as cl
except ImportError as error:  # pragma: no cover
    raise ImportError("[opencl] expected pyopencl; install flambeau[opencl]") from error

__all__ = ["device", "name"]


def _choose() -> Any:
    """The device to use: that of FLAMBEAU_OPENCL (a part of its name), else the first."""
    try:
        devices = [d for platform in cl.get_platforms() for d in platform.get_devices()]
    except cl.Error as error:
        raise ImportError(f"[opencl] expected an OpenCL driver, got none: {error}") from error
    wanted = os.environ.get("FLAMBEAU_OPENCL", "").lower()
    chosen = [d for d in devices if wanted in d.name.lower() and d.svm_capabilities]
    if not chosen:
        raise ImportError(
            "[opencl] expected a device with shared virtual memory, got " + ", ".join(d.name for d in devices)
        )
    return chosen[0]


_device = _choose()
name: str = _device.name
_context = cl.Context([_device])
_queue = cl.CommandQueue(_context)
_has_double = "cl_khr_fp64" in _device.extensions


# ---------------------------------------------------------------- memory


class _Pool:
    """Blocks of shared virtual memory by their size, kept when they are freed."""

    def __init__(self) -> None:
        self.free_blocks: dict[int, list[int]] = {}
        self.blocks: dict[int, Any] = {}  # allocations by address
        self.lock = threading.Lock()

    @staticmethod
    def rounded(size: int) -> int:
        return max(64, 1 << (size - 1).bit_length()) if size < 1 << 20 else -(-size // (1 << 20)) * (1 << 20)

    def allocate(self, size: int) -> int:
        size = self.rounded(size)
        with self.lock:
            kept = self.free_blocks.get(size)
            if kept:
                return kept.pop()
        flags = cl.svm_mem_flags.READ_WRITE
        if _fine_grained:
            flags |= cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
        block = cl.SVMAllocation(_context, size, 64, flags)
        with self.lock:
            self.blocks[block.svm_ptr] = block
        return int(block.svm_ptr)

    def free(self, address: int, size: int) -> None:
        with self.lock:
            self.free_blocks.setdefault(self.rounded(size), []).append(address)

    def empty(self) -> None:
        """Gives back what nobody uses."""
        _queue.finish()
        with self.lock:
            for addresses in self.free_blocks.values():
                for address in addresses:
                    self.blocks.pop(address).release()
            self.free_blocks.clear()


_pool = _Pool()


def _copy(dst: Any, src: Any) -> None:
    """Both are addresses of this process once the queue is done; without fine-grained memory the driver copies."""
    size = src.numel() * src.element_size()
    on_device = dst.device.type == src.device.type
    if on_device or not _fine_grained:
        blocking = not on_device
        _check(_icd.clEnqueueSVMMemcpy(_queue.int_ptr, blocking, dst.data_ptr(), src.data_ptr(), size, 0, None, None))
        return
    _queue.finish()
    ctypes.memmove(dst.data_ptr(), src.data_ptr(), size)


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"[opencl] expected the driver to take a command, got error {status}")


def _open_icd() -> Any:
    """The driver's entry points that are called for every kernel, without a detour over Python objects."""
    try:
        icd = ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        folder = Path(cl.__file__).parent.parent / "pyopencl.libs"
        icd = ctypes.CDLL(str(next(folder.glob("libOpenCL*"))))
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
    icd.clSetKernelArgSVMPointer.argtypes = [pointer, number, pointer]
    icd.clSetKernelArg.argtypes = [pointer, number, size, pointer]
    icd.clEnqueueNDRangeKernel.argtypes = [
        pointer,
        pointer,
        number,
        pointer,
        pointer,
        pointer,
        number,
        pointer,
        pointer,
    ]
    icd.clEnqueueSVMMemcpy.argtypes = [pointer, number, pointer, pointer, size, number, pointer, pointer]
    return icd


_icd = _open_icd()
_fine_grained = bool(_device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)


# ---------------------------------------------------------------- kernels

_OPTIONS = ["-cl-std=CL2.0"]


def _folder() -> Path:
    root = os.environ.get("FLAMBEAU_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".cache", "flambeau")
    path = Path(root) / "opencl"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _program(source: str) -> Any:
    """The program of a source: from disk where it was built before, by this driver."""
    stamp = f"{_device.name}\0{_device.driver_version}\0{' '.join(_OPTIONS)}\0{source}"
    path = _folder() / (hashlib.sha256(stamp.encode()).hexdigest()[:32] + ".bin")
    try:
        return cl.Program(_context, [_device], [path.read_bytes()]).build()
    except (OSError, cl.Error):
        pass
    program = cl.Program(_context, source).build(options=_OPTIONS)
    temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    temporary.write_bytes(program.get_info(cl.program_info.BINARIES)[0])
    os.replace(temporary, path)
    return program


class _Kernel:
    """A built kernel and the arguments that were set last."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel  # keeps the handle
        self.handle: int = kernel.int_ptr
        self.set: list[Any] = []
        self.group = max(1, min(64, kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, _device)))


_integer, _real = ctypes.c_int64(), (ctypes.c_double if _has_double else ctypes.c_float)()
_integer_at, _real_at = ctypes.byref(_integer), ctypes.byref(_real)
_sizes = (ctypes.c_size_t * 2)()
_global_at, _local_at = ctypes.addressof(_sizes), ctypes.addressof(_sizes) + ctypes.sizeof(ctypes.c_size_t)


class OpenCLPrinter(KernelPrinter):
    header = (
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" if _has_double else ""
    ) + "#pragma OPENCL FP_CONTRACT ON"
    kernel_head = "__kernel void"
    function_head = ""
    pointer_type = "__global {}*"
    real_type = "double" if _has_double else "float"
    index = "get_global_id(0)"
    single_suffix = ""

    def build(self, source: str, name: str) -> Any:
        return _Kernel(cl.Kernel(_program(source), name))

    def launch(
        self, kernel: Any, pointers: Sequence[int], integers: Sequence[int], reals: Sequence[float], items: int
    ) -> None:
        if items <= 0:
            return
        given = [*pointers, *integers, *reals, items]
        known, handle, count = kernel.set, kernel.handle, len(pointers)
        whole = len(given) == len(known)
        first_real, last = count + len(integers), len(given) - 1
        for at, value in enumerate(given):
            if whole and known[at] == value:
                continue
            if at < count:
                status = _icd.clSetKernelArgSVMPointer(handle, at, value)
            elif at < first_real or at == last:
                _integer.value = value
                status = _icd.clSetKernelArg(handle, at, 8, _integer_at)
            else:
                _real.value = value
                status = _icd.clSetKernelArg(handle, at, ctypes.sizeof(_real), _real_at)
            _check(status)
        kernel.set = given
        group = kernel.group
        _sizes[0], _sizes[1] = -(-items // group) * group, group
        _check(_icd.clEnqueueNDRangeKernel(_queue.int_ptr, handle, 1, None, _global_at, _local_at, 0, None, None))


_DTYPES = [fl.bool, fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64, fl.float32, fl.float16, fl.bfloat16]
device = register_device(
    "opencl",
    allocate=_pool.allocate,
    free=_pool.free,
    copy=_copy,
    printer=OpenCLPrinter(),
    host_fallback=True,
    dtypes=[*_DTYPES, fl.float64] if _has_double else _DTYPES,
    synchronize=_queue.finish,
    accelerator=False,
)
device.module.empty_cache = _pool.empty
device.module.get_device_name = lambda device_=None: name
