"""Choosing the fastest of several builds of a kernel by measuring, for `max_autotune`.

A kernel is built with different vector widths and unrolling, and each build is run with one thread and with all of them on
memory as large as the program's. Convolutions are measured in both ways that there are. The winner for a kernel and its
sizes is remembered on disk beside the kernels, so that a machine measures once.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau._inductor import build
from flambeau._inductor.cpp import Kernel

__all__ = ["quickest", "tuned"]

VARIANTS: tuple[tuple[str, ...], ...] = ((), ("-mprefer-vector-width=256",), ("-funroll-loops",))
REPEATS = 5  # of which the best counts
SHORTEST = 2e-4  # seconds that a measurement takes at least
_ALL = 1 << 60  # work enough for every thread


def tuned(kernels: list[Kernel]) -> list[tuple[int, int]]:
    """For each kernel the address of its fastest build, and the work that makes it run with the best number of threads."""
    winners = [_remembered(kernel) for kernel in kernels]
    unknown = [kernel for kernel, winner in zip(kernels, winners) if winner is None]
    if unknown:
        builds = [build.addresses(unknown, variant) for variant in VARIANTS]
        for at, kernel in enumerate(unknown):
            _show(at, len(unknown))
            times = {
                (variant, threads): _time(kernel, addresses[at], threads)
                for variant, addresses in enumerate(builds)
                for threads in sorted({1, fl.get_num_threads()})
            }
            variant, threads = min(times, key=lambda choice: times[choice])
            build.write(_place(kernel), json.dumps({"variant": variant, "threads": threads}))
        _show(len(unknown), len(unknown))
        winners = [_remembered(kernel) for kernel in kernels]
    choices: list[tuple[int, int]] = []
    for kernel, winner in zip(kernels, winners):
        variant, threads = winner or (0, fl.get_num_threads())  # another process may have spoilt what was written
        (address,) = build.addresses([kernel], VARIANTS[variant])
        choices.append((address, 0 if threads == 1 else _ALL))
    return choices


def quickest(what: str, ways: list[Callable[[], Any]], wait: Callable[[], Any] | None = None) -> int:
    """Which of several ways to compute something takes the least time, remembered under a description of it. `wait` is for
    devices that go on by themselves."""
    place = _file(f"{build.identity()} {what}")
    try:
        winner = int(json.loads(build.read(place))["way"])
        if 0 <= winner < len(ways):
            return winner
    except (OSError, ValueError, KeyError, TypeError):
        pass
    times = [_best(way, wait) for way in ways]
    winner = times.index(min(times))
    build.write(place, json.dumps({"way": winner}))
    return winner


def _place(kernel: Kernel) -> Any:
    """The file with the winner for a kernel and its sizes."""
    return _file(f"{build.name(kernel)} {kernel.numbers}")


def _file(key: str) -> Any:
    """Where a winner is remembered, for the number of threads there are."""
    digest = hashlib.sha256(f"{key} {fl.get_num_threads()}".encode()).hexdigest()
    return build.cache_dir() / f"tuned_{digest[:24]}"


def _remembered(kernel: Kernel) -> tuple[int, int] | None:
    try:
        winner = json.loads(build.read(_place(kernel)))
        variant, threads = int(winner["variant"]), int(winner["threads"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (variant, threads) if 0 <= variant < len(VARIANTS) else None


def _time(kernel: Kernel, address: int, threads: int) -> float:
    """Seconds of one run of a kernel."""
    memory: dict[Any, Any] = {}
    pointers = (ctypes.c_void_p * len(kernel.pointers))()
    for i, (buffer, offset) in enumerate(kernel.pointers):
        whole = buffer.memory
        if whole not in memory:
            count = 1 + sum((n - 1) * s for n, s in zip(whole.size, whole.stride))
            memory[whole] = fl.ones(count, dtype=whole.dtype, device="cpu")
        pointers[i] = memory[whole].data_ptr() + offset * buffer.dtype.itemsize
    numbers = (ctypes.c_int64 * len(kernel.numbers))(*kernel.numbers)
    places = ctypes.addressof(pointers), ctypes.addressof(numbers)
    return _best(lambda: _C._run_loop(address, *places, threads))


def _best(run: Callable[[], Any], wait: Callable[[], Any] | None = None) -> float:
    """Seconds of one run, after a first one."""
    run()
    if wait is not None:
        wait()
    count, best = 1, float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(count):
            run()
        if wait is not None:
            wait()
        taken = time.perf_counter() - start
        best = min(best, taken / count)
        count = max(count, int(SHORTEST / max(best, 1e-7)))
    return best


def _show(done: int, total: int) -> None:
    """A bar on terminals."""
    if sys.stderr.isatty():
        filled = 24 * done // total
        end = "\n" if done == total else ""
        print(
            f"\rmeasuring kernels [{'#' * filled}{'.' * (24 - filled)}] {done}/{total}",
            end=end,
            file=sys.stderr,
            flush=True,
        )
