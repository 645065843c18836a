"""Printers: what turns groups into launches, one for each kind of device.

A printer says which arithmetic it knows, and makes the launches of a program's groups, all at once so that they can be
built side by side. Everything above it is the same for all devices.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

from flambeau._inductor import build, config, cpp
from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.schedule import Group
from flambeau.ops.expr import Expr

__all__ = ["CppPrinter", "Launch", "Printer", "Work", "printer_for"]


Work = tuple[Group | OperatorCall, set[Buffer]]


class Launch(Protocol):
    """One kernel of a program."""

    pointers: list[tuple[Buffer, int]]  # buffer and offset in elements
    scratch: Sequence[Buffer]  # that it is the first to use and nobody outside of its group knows

    def step(self, pointers: list[int]) -> tuple[Any, ...]:
        """The step of a program; `pointers` are slots and offsets in bytes."""


class Printer(Protocol):
    random: bool  # knows loops over random words
    float8: bool  # knows loops that read and write the 8-bit floats that products take
    complex: bool  # knows loops over complex numbers

    def knows(self, expr: Expr, dtype: Any) -> bool:
        """Whether arithmetic of a dtype can be printed."""

    def launches(self, work: list[Work]) -> list[list[Launch] | None]:
        """The kernels of each group, given with the buffers that others need of it, and of each operator call, given with
        those that the program returns; None for calls that stay calls, nothing for those whose results a group makes."""


class _CppLaunch:
    def __init__(self, kernel: cpp.Kernel, address: int, work: int) -> None:
        self.kernel = kernel
        self.work = work
        self.address = address
        self.pointers = kernel.pointers
        self.scratch: Sequence[Buffer] = ()

    def step(self, pointers: list[int]) -> tuple[Any, ...]:
        return "launch", self.address, pointers, self.kernel.numbers, self.work


class CppPrinter:
    """C++ with OpenMP."""

    random = False
    float8 = False
    complex = True

    def knows(self, expr: Expr, dtype: Any) -> bool:
        return not dtype.is_complex or cpp.is_known_of_complex(expr)

    def launches(self, work: list[Work]) -> list[list[Launch] | None]:
        kernels = [cpp.print_group(item, stored) for item, stored in work if isinstance(item, Group)]
        made = iter([_CppLaunch(kernel, *found) for kernel, found in zip(kernels, self._built(kernels))])
        return [[next(made)] if isinstance(item, Group) else None for item, _ in work]

    @staticmethod
    def _built(kernels: list[cpp.Kernel]) -> list[tuple[int, int]]:
        """The address of each kernel, and the work that decides on its threads."""
        if kernels and (config.max_autotune or config.max_autotune_pointwise):
            from flambeau._inductor.tune import tuned

            return tuned(kernels)
        serial = config.cpp.threads == 1
        return [
            (address, 0 if serial else kernel.work)
            for kernel, address in zip(kernels, build.addresses(kernels) if kernels else [])
        ]


def printer_for(device: Any) -> Printer | None:
    """The printer of a device's kernels; None when there is none, so that every call stays a call."""
    if device.type != "cuda":
        return CppPrinter()
    from flambeau._inductor import triton_build

    if triton_build.available():
        return triton_build.TritonPrinter.of(device)
    _warn_once()
    return None


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "compile: Triton was not found, so compiled functions run operator by operator on GPUs; install flambeau[gpu] to "
        "get the generated kernels",
        stacklevel=2,
    )
