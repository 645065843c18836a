"""Kernels, copies and fills of the device as events of the profiler, under the operators that started them.

The CUDA library writes what CUPTI tells as lines: kind, start, end, correlation, device, stream or thread, bytes, name. A call
of the driver and what it starts have one correlation; the operator is the innermost one that was open when the call was made.
"""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Iterable

from flambeau.profiler._events import FunctionEvent

__all__ = ["device_events", "start_device", "stop_device"]


def start_device() -> bool:
    """Whether a GPU's activity is recorded from now on."""
    from flambeau import cuda
    from flambeau.cuda import _library

    if not cuda.is_available():
        return False
    recorded = bool(_library.call("activity_start"))
    if not recorded:
        warnings.warn(
            "[profile] kernels are not recorded: expected CUPTI (libcupti.so of the CUDA toolkit or of the package "
            "nvidia-cuda-cupti) that no other profiler uses, got none",
            stacklevel=4,
        )
    return recorded


def stop_device() -> str:
    """What the GPUs have done since the start, when they are done."""
    from flambeau import cuda
    from flambeau.cuda import _library

    for index in range(cuda.device_count()):
        cuda.synchronize(index)
    text: bytes = _library.call("activity_stop")
    return text.decode(errors="replace")


class _Operators:
    """Operators and named ranges by thread, to be found by time."""

    def __init__(self, events: Iterable[FunctionEvent]) -> None:
        self.by_thread: dict[int, list[FunctionEvent]] = {}
        for event in events:
            self.by_thread.setdefault(event.thread, []).append(event)
        for own in self.by_thread.values():
            own.sort(key=lambda e: (e.start, -e.end))
        self.starts = {thread: [e.start for e in own] for thread, own in self.by_thread.items()}

    def at(self, time: int) -> FunctionEvent | None:
        """The innermost one that is open; of several threads' the one that began last."""
        innermost: FunctionEvent | None = None
        for thread, own in self.by_thread.items():
            place = bisect.bisect_right(self.starts[thread], time) - 1
            event: FunctionEvent | None = own[place] if place >= 0 else None
            while event is not None and event.end < time:
                event = event.cpu_parent
            if event is not None and (innermost is None or event.start >= innermost.start):
                innermost = event
        return innermost


def device_events(text: str, events: list[FunctionEvent]) -> list[FunctionEvent]:
    """The device's events in order, whose times are added to the (nested) events that started them."""
    rows = []
    calls: dict[int, int] = {}  # by correlation: when it began
    for line in text.splitlines():
        kind, *fields, name = line.split("\t", 7)
        began, ended, number, place, queue, count = map(int, fields)
        if kind == "call":
            calls.setdefault(number, began)
        else:
            rows.append((began, ended, kind, number, place, queue, count, name))
    operators = _Operators(events)
    recorded = []
    for start, end, kind, correlation, device, stream, size, name in sorted(rows):
        event = FunctionEvent(name, start, end, kind, thread=stream, sequence=correlation)
        event.device_type, event.device_index, event.bytes = "cuda", device, size
        event.cpu_time_total = event.self_cpu_time_total = 0.0
        event.device_time_total = event.self_device_time_total = (end - start) / 1e3
        recorded.append(event)
        operator = operators.at(calls[correlation]) if correlation in calls else None
        if operator is None:
            continue
        event.started_by = operator
        operator.kernels.append(event)
        operator.self_device_time_total += event.device_time_total
        above: FunctionEvent | None = operator
        while above is not None:
            above.device_time_total += event.device_time_total
            above = above.cpu_parent
    return recorded
