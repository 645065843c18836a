"""The functions of torch_xla.debug.metrics: `flambeau.lazy.metrics`, which counts for all recording devices."""

from flambeau.lazy.metrics import (
    clear_all,
    clear_counters,
    counter_names,
    counter_value,
    metric_data,
    metric_names,
    metrics_report,
)

__all__ = [
    "clear_all",
    "clear_counters",
    "counter_names",
    "counter_value",
    "metric_data",
    "metric_names",
    "metrics_report",
]
