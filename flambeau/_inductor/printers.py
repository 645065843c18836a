"""Printers: what turns groups into launches, one for each kind of device.

A printer says which arithmetic it knows, and makes the launches of a program's groups, all at once so that they can be
built side by side. Everything above it is the same for all devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from flambeau._inductor import build, cpp
from flambeau._inductor.ir import Buffer
from flambeau._inductor.schedule import Group
from flambeau.ops.expr import Expr

__all__ = ["CppPrinter", "Launch", "Printer", "printer_for"]


class Launch(Protocol):
    """One kernel of a program."""

    pointers: list[tuple[Buffer, int]]  # buffer and offset in elements
    scratch: Sequence[Buffer]  # that it is the first to use and nobody outside of its group knows

    def step(self, pointers: list[int]) -> tuple[Any, ...]:
        """The step of a program; `pointers` are slots and offsets in bytes."""


class Printer(Protocol):
    random: bool  # knows loops over random words

    def knows(self, expr: Expr, dtype: Any) -> bool:
        """Whether arithmetic of a dtype can be printed."""

    def launches(self, groups: list[tuple[Group, set[Buffer]]]) -> list[list[Launch]]:
        """The kernels of each group, given with the buffers that others need of it."""


class _CppLaunch:
    def __init__(self, kernel: cpp.Kernel, address: int) -> None:
        self.kernel = kernel
        self.address = address
        self.pointers = kernel.pointers
        self.scratch: Sequence[Buffer] = ()

    def step(self, pointers: list[int]) -> tuple[Any, ...]:
        return "launch", self.address, pointers, self.kernel.numbers, self.kernel.work


class CppPrinter:
    """C++ with OpenMP."""

    random = False

    def knows(self, expr: Expr, dtype: Any) -> bool:
        return True

    def launches(self, groups: list[tuple[Group, set[Buffer]]]) -> list[list[Launch]]:
        kernels = [cpp.print_group(group, stored) for group, stored in groups]
        places = build.addresses(kernels) if kernels else []
        return [[_CppLaunch(kernel, address)] for kernel, address in zip(kernels, places)]


def printer_for(device: Any) -> Printer:
    """The printer of a device's kernels."""
    if device.type == "cuda":
        from flambeau._inductor.triton_build import TritonPrinter

        return TritonPrinter.of(device)
    return CppPrinter()
