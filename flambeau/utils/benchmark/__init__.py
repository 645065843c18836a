"""Timing of small pieces of code: `Timer(stmt, setup, globals).blocked_autorange()`, and tables of the results."""

from __future__ import annotations

import statistics
import timeit
from typing import Any

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "timer"]

timer = timeit.default_timer


class TaskSpec:
    """What was measured."""

    def __init__(
        self, stmt: str, setup: str = "pass", label: Any = None, sub_label: Any = None, description: Any = None,
        env: Any = None, num_threads: int = 1, **options: Any,
    ) -> None:  # fmt: skip
        self.stmt, self.setup, self.label, self.sub_label = stmt, setup, label, sub_label
        self.description, self.env, self.num_threads = description, env, num_threads

    @property
    def title(self) -> str:
        return self.label or self.stmt


class Measurement:
    """The times of some runs, in seconds a call."""

    def __init__(self, number_per_run: int, raw_times: list[float], task_spec: TaskSpec, metadata: Any = None) -> None:
        self.number_per_run, self.raw_times, self.task_spec, self.metadata = (
            number_per_run,
            raw_times,
            task_spec,
            metadata,
        )

    @property
    def times(self) -> list[float]:
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        if len(self.times) < 2:
            return 0.0
        quarters = statistics.quantiles(self.times, n=4)
        return quarters[2] - quarters[0]

    @property
    def as_row_name(self) -> str:
        return self.task_spec.sub_label or self.task_spec.stmt

    def __getattr__(self, name: str) -> Any:
        if name in ("stmt", "setup", "label", "sub_label", "description", "env", "num_threads", "title"):
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{__name__}.Measurement {self.title}\n  {_shown(self.median)} median of {len(self.times)} runs>"


def _shown(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds / 1e-9:.2f} ns"


class Timer:
    """Times a statement with a fixed number of threads."""

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Any = timer, globals: Any = None,
        label: Any = None, sub_label: Any = None, description: Any = None, env: Any = None, num_threads: int = 1,
        language: Any = "python",
    ) -> None:  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("[Timer] expected the statement as a string, got something else")
        if str(language).lower() not in ("python", "py", "language.python"):
            raise NotImplementedError(f"[Timer] expected Python, got {language}")
        import textwrap

        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._task_spec = TaskSpec(stmt, setup, label, sub_label, description, env, num_threads)
        self._timer = timeit.Timer(stmt, setup, timer, globals={**(globals or {}), **_torch()})

    def _run(self, number: int) -> float:
        import flambeau

        before = flambeau.get_num_threads()
        flambeau.set_num_threads(self._task_spec.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            flambeau.set_num_threads(before)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        self._run(max(1, number // 100))
        return Measurement(number, [self._run(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> Any:
        raise NotImplementedError("[Timer.repeat] expected blocked_autorange or adaptive_autorange instead")

    def autorange(self, callback: Any = None) -> Measurement:
        number = self._block(0.1)
        return Measurement(number, [self._timed(number, callback)], self._task_spec)

    def _timed(self, number: int, callback: Any) -> float:
        """Seconds of a block of calls, which the callback hears of too."""
        seconds = self._run(number)
        if callback is not None:
            callback(number, seconds)
        return seconds

    def _block(self, min_run_time: float) -> int:
        """How many calls a block needs to dwarf the cost of timing it."""
        number = 1
        while self._run(number) < min_run_time / 100 and number < 10**8:
            number *= 10
        return number

    def blocked_autorange(self, callback: Any = None, min_run_time: float = 0.2) -> Measurement:
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._timed(number, callback))
        return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Any = None
    ) -> Measurement:
        """Runs until the spread of the times is below threshold times their median."""
        number = self._block(0.05)
        times: list[float] = []
        while sum(times) < max_run_time:
            times.append(self._timed(number, callback))
            result = Measurement(number, times, self._task_spec)
            if len(times) > 4 and sum(times) > min_run_time and result.iqr < threshold * result.median:
                break
        return Measurement(number, times, self._task_spec)


def _torch() -> dict[str, Any]:
    import flambeau

    return {"torch": flambeau, "flambeau": flambeau}


class Compare:
    """Tables, one for each label: a row for each sub-label and number of threads, a column for each description."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results = list(results)
        self._digits = 1

    def extend_results(self, results: list[Measurement]) -> None:
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show no more digits than the measurements justify."""
        self._digits = 0

    def colorize(self, rowwise: bool = False) -> None:
        """Text has no colours; accepted so that scripts run."""

    def highlight_warnings(self) -> None:
        """See `colorize`."""

    def __str__(self) -> str:
        labels = list(dict.fromkeys(r.title for r in self._results))
        return "\n".join(self._table(label, [r for r in self._results if r.title == label]) for label in labels)

    def _table(self, label: str, results: list[Measurement]) -> str:
        smallest = min(r.median for r in results)
        unit, name, size = next((u for u in _UNITS if smallest >= u[2]), _UNITS[-1])
        columns = list(dict.fromkeys(r.description or "" for r in results))
        cells: dict[Any, list[float]] = {}
        for r in results:
            key = (r.num_threads, r.as_row_name, r.description or "")
            cells.setdefault(key, []).append(r.median)
        threads = sorted({r.num_threads for r in results})
        rows = list(dict.fromkeys(r.as_row_name for r in results))
        first = max(len(row) for row in rows) + 6
        widths = [max(len(column), 10) for column in columns]

        def line(head: str, values: list[str]) -> str:
            texts = [value.rjust(width) for value, width in zip(values, widths, strict=True)]
            return f"{head.ljust(first)}  |  {'  |  '.join(texts)}"

        head = line("", columns)
        out = [f"[{f' {label} '.center(len(head) - 2, '-')}]", head]
        for n in threads:
            out.append(f"{n} threads: ".ljust(len(head), "-"))
            for row in rows:
                measured = [cells.get((n, row, column)) for column in columns]
                if any(measured):
                    texts = [f"{statistics.median(c) / size:.{self._digits}f}" if c else "" for c in measured]
                    out.append(line(f"      {row}", texts))
        return "\n".join([*out, "", f"Times are in {name} ({unit}).", ""])

    def print(self) -> None:
        print(self)


_UNITS = (
    ("s", "seconds", 1.0), ("ms", "milliseconds", 1e-3), ("us", "microseconds", 1e-6), ("ns", "nanoseconds", 1e-9),
)  # fmt: skip
