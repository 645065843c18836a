"""Printers: what turns groups into launches, one for each kind of device.

A printer says which arithmetic it knows and what it is good at, and makes the launches of a program's groups, all at once
so that they can be built side by side. The stages above ask its properties, never which printer or device it is.
`register_printer` gives a device of one's own a printer.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import flambeau as fl
from flambeau._inductor import build, config, cpp
from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.schedule import Group
from flambeau._inductor.steps import Location, LoopStep, Step
from flambeau.backends import compilation
from flambeau.ops.expr import Expr

__all__ = ["CppPrinter", "Launch", "OperatorsOnly", "Printer", "Work", "printer_for", "register_printer"]


Work = tuple[Group | OperatorCall, set[Buffer]]


class Launch(Protocol):
    """One kernel of a program."""

    pointers: list[tuple[Buffer, int]]  # buffer and offset in elements
    scratch: Sequence[Buffer]  # that it is the first to use and nobody outside of its group knows

    def step(self, pointers: list[Location]) -> Step:
        """The step of a program; `pointers` are where its pointers point."""


class Printer:
    """The properties of a printer. The defaults are those of one that knows no loops."""

    fuses = False  # prints loops; otherwise every call stays a call
    random = False  # knows loops over random words
    indices = False  # knows loops over the numbers of elements
    guards = False  # knows loads under conditions, so that operators that join tensors are loops
    places = False  # knows loops that write where a number in memory says
    matrix_vectors = False  # products of a matrix and one vector are loops, which fuse with what is around them
    float8 = False  # knows loops that read and write the 8-bit floats that matrix products take
    complex = False  # knows loops over complex numbers
    column_groups = False  # a kernel can go on with what it has reduced along the rows
    orders_by_memory = False  # loops take the order of memory instead of the order of dimensions
    converts_loads = False  # each element is loaded in its own dtype, so that exact wider copies are not needed
    small_row_sums = True  # sums a few rows itself; otherwise the operator does it with the rounding of eager mode
    channels_last: tuple[Any, ...] = ()  # dtypes whose convolutions want channels-last activations
    channels_last_weights = False  # and weights
    pads_rows = False  # matrix products want rows that begin at even addresses
    epilogues = False  # operators that take the following ones along, and frozen weights, exist for its device
    host_memory = False  # its kernels take addresses of the host, so that intermediate results can lie in an arena
    overwrites = False  # its kernels may write results over operands that are read at the same points
    specializes_alignment = False  # its kernels are built for whether addresses are multiples of sixteen
    keeps_layouts = True  # operators of its device return the recorded strides
    records_graphs = False  # its device can record a program and run it as one launch
    saves_shared_operands = False  # what matrix products of forward and backward both read is saved, never recomputed

    def knows(self, expr: Expr, dtype: Any) -> bool:
        """Whether arithmetic of a dtype can be printed."""
        return False

    def definitions(self) -> dict[str, Callable[..., Any]]:
        """Further operators that are recorded as what their definitions call, because the device has no kernel for them."""
        return {}

    def launches(self, work: list[Work]) -> list[list[Launch] | None]:
        """The kernels of each group, given with the buffers that others need of it, and of each operator call, given with
        those that the program returns; None for calls that stay calls, nothing for those whose results a group makes."""
        return [None for _ in work]

    def launches_by_step(self, work: list[Work], steps: Sequence[int]) -> list[list[Launch] | None]:
        """The same, where the groups of a step (those that are `small`) do not depend on each other and may be one kernel, which
        the first of them then has."""
        return self.launches(work)

    def arranged(self, scheduled: list[Group | OperatorCall]) -> list[Group | OperatorCall]:
        """What is scheduled in an order that suits the printer better."""
        return scheduled

    def small(self, group: Group) -> bool:
        """Whether the kernel of a group is too small for several threads, or for a whole GPU, and may run beside others of that
        kind."""
        return False


class OperatorsOnly(Printer):
    """Prints nothing: programs of operator calls, for devices without a printer and for `aot_eager`."""

    def __init__(self, device: Any) -> None:
        self.host_memory = device.type == "cpu"
        self.keeps_layouts = self.host_memory
        self.specializes_alignment = not self.host_memory
        self.records_graphs = device.type == "cuda"


class _CppLaunch:
    def __init__(self, kernel: cpp.Kernel, address: int, work: int) -> None:
        self.kernel = kernel
        self.work = work
        self.address = address
        self.pointers = kernel.pointers
        self.scratch: Sequence[Buffer] = ()

    def step(self, pointers: list[Location]) -> Step:
        return LoopStep(self.address, pointers, self.kernel.numbers, self.work)


class CppPrinter(Printer):
    """C++ on the threads of the pool."""

    fuses = True
    complex = True
    small_row_sums = False
    channels_last = (fl.float32,)
    epilogues = True
    host_memory = True

    def knows(self, expr: Expr, dtype: Any) -> bool:
        return not dtype.is_complex or cpp.is_known_of_complex(expr)

    def launches(self, work: list[Work]) -> list[list[Launch] | None]:
        kernels = [cpp.print_group(item, stored) for item, stored in work if isinstance(item, Group)]
        launches = iter([_CppLaunch(kernel, *built) for kernel, built in zip(kernels, self._built(kernels))])
        return [[next(launches)] if isinstance(item, Group) else None for item, _ in work]

    def small(self, group: Group) -> bool:
        measured = config.max_autotune or config.max_autotune_pointwise  # those are measured one by one
        return not measured and cpp.work_of(group) < cpp.SMALL_WORK

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


# ---------------------------------------------------------------- which printer a device has


Factory = Callable[[Any], Printer | None]

_NO_COMPILER = "no C++ compiler was found, so compiled functions run operator by operator; install g++"
_NO_TRITON = "Triton was not found, so compiled functions run operator by operator on GPUs; install flambeau[gpu]"


def _cpp(device: Any) -> Printer | None:
    if build.compiler() is not None:
        return CppPrinter()
    _warn_once(_NO_COMPILER)
    return None


def _triton(device: Any) -> Printer | None:
    from flambeau._inductor import triton_build

    if triton_build.available():
        return triton_build.TritonPrinter.of(device)
    _warn_once(_NO_TRITON)
    return None


_factories: dict[str, Factory] = {"cpu": _cpp, "cuda": _triton}


def register_printer(device_type: str, factory: Factory) -> None:
    """Gives a kind of device a printer: `factory(device)` makes it, or returns None where the device has none."""
    _factories[device_type] = factory


def printer_for(device: Any) -> Printer | None:
    """The printer of a device's kernels; None when there is none, so that every call stays a call."""
    factory = _factories.get(device.type)
    if factory is not None:
        return factory(device)
    kernels = compilation.printers.get(device.type)
    if kernels is None:
        return None
    from flambeau._inductor.c_groups import CGroupPrinter

    return CGroupPrinter(kernels)


@functools.cache
def _warn_once(what: str) -> None:
    warnings.warn(f"compile: {what} to get the generated kernels", stacklevel=2)
