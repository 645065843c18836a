"""The chip: its memory, its copy, and how its kernels are built and launched.

Importing this module registers the device `mychip`; installed as a package, flambeau does so when the name is first used.
The chip of this example is the host's processor: kernels are C, compiled by `cc`, and memory comes from malloc. A real one
replaces `allocate`, `free`, `copy`, `ChipPrinter.build` and `ChipPrinter.launch`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flambeau.backends import register_device
from flambeau.backends.printer import KernelPrinter

__all__ = ["device"]

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


def allocate(size: int) -> int:
    """The address of a block of the chip's memory."""
    address = _libc.malloc(max(size, 1))
    if not address:
        raise MemoryError(f"[mychip] expected {size} bytes of memory, got none")
    return int(address)


def free(address: int, size: int) -> None:
    _libc.free(address)


def copy(target: Any, source: Any) -> None:
    """Bytes from one contiguous tensor to another, of which one may be the host's."""
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.numel() * source.element_size())


_TYPES = (
    "typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned uint; typedef unsigned long ulong;"
)


class ChipPrinter(KernelPrinter):
    """Kernels in C: a function for one work item, and a loop over all of them."""

    header = f"#include <math.h>\n{_TYPES}"
    kernel_head = "static void"
    function_head = "static inline"
    index = "item"

    def __init__(self) -> None:
        super().__init__()
        root = os.environ.get("MYCHIP_CACHE") or os.path.join(tempfile.gettempdir(), f"mychip-{os.getuid()}")
        self.folder = Path(root)
        self.folder.mkdir(parents=True, exist_ok=True)

    def build(self, source: str, name: str) -> Any:
        """The built kernel of a source, from disk where it was built before."""
        path = self.folder / (hashlib.sha1(source.encode()).hexdigest() + ".so")
        if not path.exists():
            parameters = source.partition(f"{name}(")[2].partition(")")[0]
            names = ", ".join(p.split()[-1] for p in parameters.split(", "))
            item = source.replace(", long items)", ", long items, long item)")
            loop = f"void run({parameters}) {{ for (long k = 0; k < items; ++k) {name}({names}, k); }}"
            text, built = path.with_suffix(f".{os.getpid()}.c"), path.with_suffix(f".{os.getpid()}")
            text.write_text(item + loop)
            subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", built, text, "-lm"], check=True)
            text.unlink()
            os.replace(built, path)
        return ctypes.CDLL(str(path)).run

    def launch(
        self, kernel: Any, pointers: Sequence[int], integers: Sequence[int], reals: Sequence[float], items: int
    ) -> None:
        """Runs a kernel for all its work items."""
        numbers = [*map(ctypes.c_long, integers), *map(ctypes.c_double, reals), ctypes.c_long(items)]
        kernel(*map(ctypes.c_void_p, pointers), *numbers)


# What C cannot have (complex numbers, factorizations) runs on the host and is counted; False raises instead.
device = register_device(
    "mychip", allocate=allocate, free=free, copy=copy, pooled=True, printer=ChipPrinter(), host_fallback=True
)
