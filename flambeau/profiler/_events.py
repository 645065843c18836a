"""What the profiler recorded: events, their sums by name, the table and the trace file."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval"]


class Interval:
    """Start and end in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval({self.start}, {self.end})"


class _Costs:
    """Counters that events and their sums share."""

    count = 1
    cpu_time_total = self_cpu_time_total = 0.0
    device_time_total = self_device_time_total = 0.0
    cpu_memory_usage = self_cpu_memory_usage = device_memory_usage = self_device_memory_usage = 0
    flops = 0
    is_async = is_remote = is_legacy = is_user_annotation = False
    device_type = "cpu"
    node_id = -1

    @property
    def device_time(self) -> float:
        return self.device_time_total / max(1, self.count)

    @property
    def cuda_time(self) -> float:
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        return self.self_device_time_total

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / max(1, self.count)

    @property
    def cpu_time_total_str(self) -> str:
        return _time(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        return _time(self.self_cpu_time_total)

    @property
    def cpu_time_str(self) -> str:
        return _time(self.cpu_time)


class FunctionEvent(_Costs):
    """One call of an operator or one named range; start and end are nanoseconds, sums are microseconds."""

    def __init__(
        self,
        name: str,
        start: int,
        end: int,
        kind: str,
        shapes: Any = None,
        thread: int = 0,
        memory: int = 0,
        stack: Any = (),
        sequence: int = 0,
    ) -> None:
        self.name = self.key = self.trace_name = name
        self.start, self.end, self.kind, self.input_shapes = start, end, kind, shapes
        self.thread, self.id, self.sequence_nr = thread, sequence, -1
        self.cpu_time_total = self.self_cpu_time_total = (end - start) / 1e3
        self.cpu_memory_usage = self.self_cpu_memory_usage = memory
        self.stack = list(stack)
        self.is_user_annotation = kind == "user_annotation"
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.kernels: list[FunctionEvent] = []  # that it started, and copies and fills
        self.started_by: FunctionEvent | None = None  # of a kernel
        self.device_index, self.bytes = 0, 0  # of a kernel or a copy

    @property
    def time_range(self) -> Interval:
        return Interval(self.start / 1e3, self.end / 1e3)

    def __repr__(self) -> str:
        took = self.cpu_time_total if self.device_type == "cpu" else self.device_time_total
        return f"<FunctionEvent {self.name} {took:.3f}us>"


_SUMMED = (
    "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "device_time_total",
    "self_device_time_total",
)  # fmt: skip


class FunctionEventAvg(_Costs):
    """The calls of one name together."""

    def __init__(self, key: str = "", shapes: Any = None, stack: Any = ()) -> None:
        self.key = self.name = key
        self.input_shapes, self.stack = shapes, list(stack)
        self.count = 0

    def add(self, event: Any) -> FunctionEventAvg:
        self.count += event.count
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(event, name))
        self.device_type = event.device_type
        self.is_user_annotation = event.is_user_annotation
        return self

    def __repr__(self) -> str:
        return f"<FunctionEventAvg {self.key} {self.cpu_time_total:.3f}us in {self.count}>"


_SORTABLE = frozenset(
    "cpu_time cpu_time_total self_cpu_time_total cpu_memory_usage self_cpu_memory_usage count device_time "
    "device_time_total self_device_time_total device_memory_usage self_device_memory_usage".split()
)


class EventList(list):
    """Events or their averages."""

    def __init__(self, events: Any = (), profile_memory: bool = False, with_stack: bool = False) -> None:
        super().__init__(events)
        self._profile_memory, self._with_stack = profile_memory, with_stack

    @property
    def self_cpu_time_total(self) -> float:
        return sum(event.self_cpu_time_total for event in self)

    @property
    def self_device_time_total(self) -> float:
        """Of what ran on the device: operators' times are those of their kernels again."""
        return sum(event.self_device_time_total for event in self if event.device_type != "cpu")

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0) -> EventList:
        """Sums by name, and by shapes and innermost frames where asked for."""
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else None
            stack = tuple(event.stack[:group_by_stack_n])
            key = (event.key, str(shapes), stack, event.device_type)
            if key not in groups:
                groups[key] = FunctionEventAvg(event.key, shapes, stack)
            groups[key].add(event)
        return EventList(groups.values(), self._profile_memory, bool(group_by_stack_n))

    def total_average(self) -> FunctionEventAvg:
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The entries as text, largest first when sort_by names a column."""
        rows = list(self)
        if top_level_events_only:
            rows = [row for row in rows if getattr(row, "cpu_parent", None) is None]
        if sort_by:
            name = sort_by.replace("cuda_", "device_")
            if name not in _SORTABLE:
                raise AttributeError(f"[table] expected sort_by to be one of {sorted(_SORTABLE)}, got {sort_by!r}")
            rows.sort(key=lambda row: getattr(row, name), reverse=True)
        total = self.self_cpu_time_total or 1.0
        device_total = self.self_device_time_total
        with_shapes = any(row.input_shapes for row in rows)
        with_stack = any(row.stack for row in rows)
        heads = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
        heads += ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"] if device_total else []
        heads += ["CPU Mem", "Self CPU Mem"] if self._profile_memory else []
        heads += ["# of Calls"]
        heads += ["Input Shapes"] if with_shapes else []
        heads += ["Source Location"] if with_stack else []
        lines = []
        for row in rows[: row_limit if row_limit >= 0 else None]:
            cells = [
                _short(row.key, max_name_column_width),
                f"{100 * row.self_cpu_time_total / total:.2f}%",
                _time(row.self_cpu_time_total, time_unit),
                f"{100 * row.cpu_time_total / total:.2f}%",
                _time(row.cpu_time_total, time_unit),
                _time(row.cpu_time, time_unit),
            ]
            if device_total:
                cells += [
                    _time(row.self_device_time_total, time_unit),
                    f"{100 * row.self_device_time_total / device_total:.2f}%",
                    _time(row.device_time_total, time_unit),
                    _time(row.device_time, time_unit),
                ]
            if self._profile_memory:
                cells += [_bytes(row.cpu_memory_usage), _bytes(row.self_cpu_memory_usage)]
            cells += [str(row.count)]
            if with_shapes:
                cells += [_short(str(row.input_shapes or ""), max_shapes_column_width)]
            if with_stack:
                cells += [_short(row.stack[0], max_src_column_width) if row.stack else ""]
            lines.append(cells)
        widths = [max(len(cells[i]) for cells in [heads, *lines]) + 2 for i in range(len(heads))]
        rule = "  ".join("-" * width for width in widths)
        text = ["  ".join(cell.rjust(width) for cell, width in zip(c, widths, strict=True)) for c in [heads, *lines]]
        head = [header] if header else []
        end = f"Self CPU time total: {_time(self.self_cpu_time_total)}"
        end += f"\nSelf CUDA time total: {_time(device_total)}" if device_total else ""
        return "\n".join([*head, rule, text[0], rule, *text[1:], rule, end, ""])

    def export_chrome_trace(self, path: Any, metadata: dict[str, Any] | None = None) -> None:
        """A file for chrome://tracing and Perfetto; compressed when the name ends in .gz."""
        import gzip

        process = os.getpid()
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": process, "tid": 0, "args": {"name": "python"}}
        ]
        devices = sorted({event.device_index for event in self if event.device_type != "cpu"})
        events += [
            {"name": "process_name", "ph": "M", "pid": index, "tid": 0, "args": {"name": f"GPU {index}"}}
            for index in devices
        ]
        for event in self:
            if event.device_type != "cpu":
                events += _on_device(event, process)
                continue
            details: dict[str, Any] = {"External id": event.id}
            if event.input_shapes:
                details["Input Dims"] = event.input_shapes
            if event.stack:
                details["Call stack"] = ";".join(event.stack)
            if self._profile_memory:
                details["Bytes"] = event.cpu_memory_usage
            events.append(
                {
                    "ph": "X", "cat": event.kind, "name": event.name, "pid": process, "tid": event.thread,
                    "ts": event.start / 1e3, "dur": event.cpu_time_total, "args": details,
                }
            )  # fmt: skip
        text = json.dumps(
            {"schemaVersion": 1, **(metadata or {}), "displayTimeUnit": "ms", "traceEvents": events}, default=str
        )
        with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:  # type: Any
            file.write(text)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Stacks with their cost, one a line, as flame graph tools read them."""
        if metric not in ("self_cpu_time_total", "self_cuda_time_total", "self_device_time_total"):
            raise ValueError(f"[export_stacks] expected self_cpu_time_total or self_cuda_time_total, got {metric!r}")
        with open(path, "w") as file:
            for event in self:
                if event.stack and (cost := int(getattr(event, metric))) > 0:
                    frames = ";".join(frame.replace(" ", "_").replace(";", ",") for frame in reversed(event.stack))
                    file.write(f"{frames};{event.name.replace(' ', '_')} {cost}\n")

    def __str__(self) -> str:
        return self.table()


def _on_device(event: Any, process: int) -> list[dict[str, Any]]:
    """An entry of the trace for a kernel or a copy, and the arrow from the operator that started it."""
    start, took = event.start / 1e3, event.device_time_total
    details = {"stream": event.thread, "correlation": event.id} | ({"bytes": event.bytes} if event.bytes else {})
    where = {"pid": event.device_index, "tid": event.thread}
    entry = {"ph": "X", "cat": event.kind, "name": event.name, **where, "ts": start, "dur": took, "args": details}
    source = event.started_by
    if source is None:
        return [entry]
    details["External id"] = source.id
    arrow = {"id": event.id, "cat": "ac2g", "name": "ac2g"}
    from_operator = {"ph": "s", "pid": process, "tid": source.thread, "ts": source.start / 1e3, **arrow}
    return [entry, from_operator, {"ph": "f", "bp": "e", **where, "ts": start, **arrow}]


def nest(events: list[FunctionEvent]) -> list[FunctionEvent]:
    """Events in order of their start, each with its parent and without the costs of the events inside it."""
    events = sorted(events, key=lambda e: (e.thread, e.start, -e.end, e.id))
    open_events: list[FunctionEvent] = []
    for event in events:
        if event.is_async:  # beside the others of its thread
            continue
        while open_events and (open_events[-1].thread != event.thread or open_events[-1].end < event.end):
            open_events.pop()
        if open_events:
            parent = event.cpu_parent = open_events[-1]
            parent.cpu_children.append(event)
            parent.self_cpu_time_total -= event.cpu_time_total
            parent.self_cpu_memory_usage -= event.cpu_memory_usage
        open_events.append(event)
    for event in reversed(events):
        if event.is_user_annotation:  # memory is counted by operators only
            event.cpu_memory_usage = sum(child.cpu_memory_usage for child in event.cpu_children)
            event.self_cpu_memory_usage = 0
            if event.cpu_parent is not None:
                event.cpu_parent.self_cpu_memory_usage -= event.cpu_memory_usage
    return sorted(events, key=lambda e: (e.start, -e.end, e.id))


def _time(microseconds: float, unit: str | None = None) -> str:
    if unit == "s" or (unit is None and microseconds >= 1e6):
        return f"{microseconds / 1e6:.3f}s"
    if unit == "ms" or (unit is None and microseconds >= 1e3):
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def _bytes(count: int) -> str:
    for factor, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} B"


def _short(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: width - 3] + "..."
