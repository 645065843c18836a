"""Counters and times of launched jobs, handed to handlers by group."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ConsoleMetricHandler", "MetricData", "MetricHandler", "MetricStream", "MetricsConfig", "NullMetricHandler",
    "configure", "getStream", "get_elapsed_time_ms", "initialize_metrics", "prof", "publish_metric", "put_metric",
]  # fmt: skip


@dataclass
class MetricData:
    timestamp: int
    group_name: str
    name: str
    value: int


class MetricsConfig:
    """Parameters of a handler."""

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = params or {}


def initialize_metrics(cfg: MetricsConfig | None = None) -> None:
    """For installations that replace it."""


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    return int((time.time() - start_time_in_seconds) * 1000)


class MetricHandler:
    """Where metrics go; programs subclass it."""

    def emit(self, metric_data: MetricData) -> None:
        raise NotImplementedError(f"[{type(self).__name__}] expected `emit` in the subclass, got none")


class ConsoleMetricHandler(MetricHandler):
    def emit(self, metric_data: MetricData) -> None:
        print(
            f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}", flush=True
        )


class NullMetricHandler(MetricHandler):
    def emit(self, metric_data: MetricData) -> None: ...


class MetricStream:
    """Metrics of one group."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name: str, metric_value: int) -> None:
        self.handler.emit(MetricData(int(time.time()), self.group_name, metric_name, metric_value))


_handlers: dict[str, MetricHandler] = {}
_default: list[MetricHandler] = [NullMetricHandler()]


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """The handler of a group, or of all that have none."""
    if group is None:
        _default[0] = handler
    else:
        _handlers[group] = handler


def getStream(group: str) -> MetricStream:
    return MetricStream(group, _handlers.get(group, _default[0]))


def put_metric(metric_name: str, metric_value: int, metric_group: str = "torchelastic") -> None:
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: int) -> None:
    """An older order of arguments of `put_metric`."""
    put_metric(metric_name, metric_value, metric_group)


def prof(fn: Callable[..., Any] | None = None, group: str = "torchelastic") -> Callable[..., Any]:
    """A decorator that records how long calls take, and whether they succeed."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            key, start = function.__qualname__, time.time()
            try:
                result = function(*args, **kwargs)
            except Exception:
                put_metric(f"{key}.failure", 1, group)
                raise
            else:
                put_metric(f"{key}.success", 1, group)
            finally:
                put_metric(f"{key}.duration.ms", get_elapsed_time_ms(start), group)
            return result

        return timed

    return wrap if fn is None else wrap(fn)
