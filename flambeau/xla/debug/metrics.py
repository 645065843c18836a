"""The functions of torch_xla.debug.metrics: `flambeau.lazy.metrics`, which counts for all recording devices."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.lazy.metrics import (
    clear_all,
    clear_counters,
    clear_metrics,
    counter_names,
    counter_value,
    metric_data,
    metric_names,
    metrics_report,
)

__all__ = [
    "clear_all", "clear_counters", "clear_metrics", "counter_names", "counter_value", "executed_fallback_ops",
    "metric_data", "metric_names", "metrics_report", "short_metrics_report",
]  # fmt: skip


def short_metrics_report(counter_names: Sequence[str] | None = None, metric_names: Sequence[str] | None = None) -> str:
    """The report of some counters and metrics only."""
    wanted = {*(counter_names or ("Compilations", "HostGraphs")), *(metric_names or ("CompileTime", "ExecuteTime"))}
    blocks = metrics_report().split("\nCounter: ")
    head, *counters = blocks[0].split("Metric: ")
    chosen = [f"Metric: {b}".rstrip("\n") for b in counters if b.split("\n")[0] in wanted]
    chosen += [f"Counter: {b}".rstrip("\n") for b in blocks[1:] if b.split("\n")[0] in wanted]
    return head + "\n".join(chosen) + "\n"


def executed_fallback_ops() -> list[str]:
    """Operators that ran on the CPU because they have no StableHLO."""
    return [name for name in counter_names() if name.startswith("aten::")]
