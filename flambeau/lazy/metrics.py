"""Counts and times of recorded programs, under the names that programs for PyTorch/XLA ask for."""

from __future__ import annotations

from typing import Any

from flambeau import _C

__all__ = [
    "clear_all",
    "clear_counters",
    "clear_metrics",
    "counter_names",
    "counter_value",
    "metric_data",
    "metric_names",
    "metrics_report",
]

_times: dict[str, list[float]] = {}
_counts: dict[str, int] = {}
recorders: list[str] = []  # devices that record


def add(name: str, seconds: float) -> None:
    """Another measurement."""
    _times.setdefault(name, []).append(seconds)


def count(name: str, by: int = 1) -> None:
    _counts[name] = _counts.get(name, 0) + by


def _native() -> dict[str, int]:
    """What the recorders of all devices counted."""
    total: dict[str, int] = {}
    for name in recorders:
        for key, value in _C._lazy_metrics(name).items():
            total[key] = total.get(key, 0) + value
    return total


def _counters() -> dict[str, int]:
    native = _native()
    return {
        "Operators": native["operators"], "Graphs": native["graphs"], "CachedGraphs": native["hits"],
        "HostCalls": native["host_calls"], "Compilations": len(_times.get("CompileTime", ())), "Kernels": 0, **_counts,
    }  # fmt: skip


def metric_names() -> list[str]:
    return ["CompileTime", "ExecuteTime"]


def metric_data(name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
    """(number of measurements, their sum in nanoseconds, the last ones as pairs of time and value); None for a name that
    nobody measures."""
    if name == "ExecuteTime":
        native = _native()
        return native["graphs"], float(native["execute_ns"]), []
    if name != "CompileTime":
        return None
    samples = [(0.0, s * 1e9) for s in _times.get(name, [])]
    return len(samples), sum(value for _, value in samples), samples[-128:]


def counter_names() -> list[str]:
    return list(_counters())


def counter_value(name: str) -> int | None:
    return _counters().get(name)


def clear_counters() -> None:
    _counts.clear()


def clear_metrics() -> None:
    _times.clear()


def clear_all() -> None:
    """Begins to count anew."""
    _times.clear()
    _counts.clear()
    for name in recorders:
        _C._lazy_clear_metrics(name)


def metrics_report() -> str:
    """All of them as text."""
    lines: list[str] = []
    for name in metric_names():
        data: Any = metric_data(name)
        number, total, _ = data
        lines += [f"Metric: {name}", f"  TotalSamples: {number}", f"  Accumulator: {total / 1e6:.3f}ms"]
    for name, value in _counters().items():
        lines += [f"Counter: {name}", f"  Value: {value}"]
    return "\n".join(lines) + "\n"
