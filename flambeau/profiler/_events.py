"""What the profiler recorded: events, their sums by name, the table and the trace file."""

from __future__ import annotations

from typing import Any

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg"]


class FunctionEvent:
    """One call of an operator or one named range; times are in microseconds."""

    def __init__(self, name: str, start: int, end: int, kind: str, shapes: Any) -> None:
        self.name = self.key = name
        self.start, self.end, self.kind, self.input_shapes = start, end, kind, shapes
        self.count = 1
        self.self_cpu_time_total = 0.0  # filled when the list is made
        self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0

    @property
    def cpu_time_total(self) -> float:
        return (self.end - self.start) / 1e3

    cpu_time = cpu_time_total

    def __repr__(self) -> str:
        return f"<FunctionEvent {self.name} {self.cpu_time_total:.3f}us>"


class FunctionEventAvg:
    """The calls of one name together."""

    def __init__(self, key: str, shapes: Any = None) -> None:
        self.key = self.name = key
        self.input_shapes = shapes
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = self.cuda_time_total = self.self_cuda_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = self.flops = 0

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / max(1, self.count)

    def add(self, event: Any) -> None:
        self.count += event.count
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total

    def __repr__(self) -> str:
        return f"<FunctionEventAvg {self.key} {self.cpu_time_total:.3f}us in {self.count}>"


class EventList(list):
    """Events or their averages."""

    def __init__(self, events: Any) -> None:
        super().__init__(events)
        if self and isinstance(self[0], FunctionEvent):
            _find_own_time(self)

    @property
    def self_cpu_time_total(self) -> float:
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0) -> EventList:
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else None
            group = groups.setdefault((event.key, str(shapes)), FunctionEventAvg(event.key, shapes))
            group.add(event)
        return EventList(groups.values())

    def total_average(self) -> FunctionEventAvg:
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        return total

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55, **options: Any
    ) -> str:
        """A table of the entries, largest first when sort_by names a column."""
        rows = list(self)
        if sort_by:
            name = sort_by.replace("cuda_", "device_")
            rows.sort(key=lambda row: getattr(row, name, 0), reverse=True)
        if row_limit >= 0:
            rows = rows[:row_limit]
        total = self.self_cpu_time_total or 1.0
        heads = ("Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls")
        cells = [
            (
                row.key[:max_name_column_width],
                f"{100 * row.self_cpu_time_total / total:.2f}%",
                _time(row.self_cpu_time_total),
                _time(row.cpu_time_total),
                _time(row.cpu_time),
                str(row.count),
            )
            for row in rows
        ]
        widths = [max(len(line[i]) for line in [heads, *cells]) + 2 for i in range(len(heads))]
        rule = "  ".join("-" * width for width in widths)
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in [heads, *cells]]
        return "\n".join([rule, lines[0], rule, *lines[1:], rule, f"Self CPU time total: {_time(total)}", ""])

    def export_chrome_trace(self, path: str) -> None:
        """A file for chrome://tracing and Perfetto; compressed when the name ends in .gz."""
        import gzip
        import json
        import os

        events = [
            {"name": e.name, "cat": e.kind, "ph": "X", "ts": e.start / 1e3, "dur": e.cpu_time_total, "pid": os.getpid(), "tid": 0}
            for e in self
        ]  # fmt: skip
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:  # type: Any
            file.write(text)

    def __str__(self) -> str:
        return self.table()


def _find_own_time(events: list[Any]) -> None:
    """The time of each event that is not spent in events inside it."""
    open_events: list[Any] = []
    for event in sorted(events, key=lambda e: (e.start, -e.end)):
        event.self_cpu_time_total = event.cpu_time_total
        while open_events and open_events[-1].end <= event.start:
            open_events.pop()
        if open_events:
            open_events[-1].self_cpu_time_total -= event.cpu_time_total
        open_events.append(event)


def _time(microseconds: float) -> str:
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"
