"""Which observers a module gets: one for its results, one for its weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau.ao.quantization import observer as observers
from flambeau.ao.quantized_types import qint8

__all__ = [
    "QConfig",
    "default_dynamic_qconfig",
    "default_per_channel_qconfig",
    "default_qconfig",
    "get_default_qconfig",
]


class QConfig(NamedTuple):
    """Functions that make an observer, such as `MinMaxObserver.with_args(dtype=quint8)`."""

    activation: Any
    weight: Any


default_qconfig = QConfig(observers.default_observer, observers.default_weight_observer)
default_per_channel_qconfig = QConfig(observers.default_observer, observers.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(
    observers.PlaceholderObserver.with_args(is_dynamic=True), observers.MinMaxObserver.with_args(dtype=qint8)
)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """What PyTorch uses for a backend; here all compute the same."""
    if backend in ("x86", "fbgemm", "onednn"):
        reduced = backend != "onednn"
        histogram = observers.HistogramObserver.with_args(reduce_range=reduced)
        return QConfig(histogram, observers.default_per_channel_weight_observer)
    if backend == "qnnpack":
        return QConfig(observers.HistogramObserver.with_args(reduce_range=False), observers.default_weight_observer)
    raise AssertionError(f"[get_default_qconfig] expected x86, fbgemm, onednn or qnnpack, got {backend!r}")
