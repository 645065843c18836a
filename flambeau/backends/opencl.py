"""OpenCL: the first device of the platform, or the one that FLAMBEAU_OPENCL names, through pyopencl.

Memory is shared virtual memory (OpenCL 2.0), so that addresses are addresses; blocks are pooled. Kernels are
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


_blocks: dict[int, Any] = {}  # allocations by address; those that are free stay in the device's pool


def _allocate(size: int) -> int:
    flags = cl.svm_mem_flags.READ_WRITE
    if _fine_grained:
        flags |= cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER  # type: ignore[assignment]
    block = cl.SVMAllocation(_context, size, 64, flags)
    _blocks[block.svm_ptr] = block
    return int(block.svm_ptr)


def _free(address: int, size: int) -> None:
    _queue.finish()
    _blocks.pop(address).release()


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
    icd.clEnqueueSVMMemcpy.argtypes = [pointer, number, pointer, pointer, size, number, pointer, pointer]
    return icd


_icd = _open_icd()
_fine_grained = bool(_device.svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER)


# ---------------------------------------------------------------- kernels

_OPTIONS = ["-cl-std=CL1.2"]  # kernels need no more; PoCL has vload for this one only


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


_ENTRIES = tuple(
    ctypes.cast(f, ctypes.c_void_p).value
    for f in (_icd.clSetKernelArgSVMPointer, _icd.clSetKernelArg, _icd.clEnqueueNDRangeKernel)
)


def _kernel(program: Any, name: str) -> Any:
    """A kernel that the native side launches; it keeps the arguments that were set last."""
    kernel = cl.Kernel(program, name)
    group = kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, _device)
    group = max(1, min(64, group))
    return fl._C._opencl_kernel(_ENTRIES, _queue.int_ptr, kernel.int_ptr, kernel, group, not _has_double)


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
    vector_type = "{}{}"
    walks_rows = bool(_device.type & cl.device_type.CPU)
    elements_per_item = 256 if walks_rows else 1

    def build(self, source: str, name: str) -> Any:
        program = _program(source)
        return _kernel(program, name), program, name

    def launch(
        self, kernel: Any, pointers: Sequence[int], integers: Sequence[int], reals: Sequence[float], items: int
    ) -> None:
        if items > 0:
            fl._C._opencl_run(kernel[0], pointers, integers, reals, items)

    def bound(self, kernel: Any, pointers: int, integers: Sequence[int], items: int) -> Any:
        count = ctypes.addressof(self.device.native_launches)
        return fl._C._opencl_bound(_kernel(*kernel[1:]), pointers, integers, items, count) if items > 0 else None


_DTYPES = [fl.bool, fl.uint8, fl.int8, fl.int16, fl.int32, fl.int64, fl.float32, fl.float16, fl.bfloat16]
device = register_device(
    "opencl",
    allocate=_allocate,
    free=_free,
    pooled=True,
    copy=_copy,
    printer=OpenCLPrinter(),
    host_fallback=True,
    dtypes=[*_DTYPES, fl.float64] if _has_double else _DTYPES,
    synchronize=_queue.finish,
    accelerator=False,
)
device.module.get_device_name = lambda device_=None: name
