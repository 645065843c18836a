"""Which observers a module gets: one for its results, one for its weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as fl
from flambeau._tensor.quantized_types import qint8, quint8
from flambeau.ao.quantization import fake_quantize as fakes
from flambeau.ao.quantization import observer as observers
from flambeau.ao.quantization.observer import _NARROWEST

__all__ = [
    "QConfig", "QConfigAny", "QConfigDynamic", "default_activation_only_qconfig", "default_debug_qconfig",
    "default_dynamic_qat_qconfig", "default_dynamic_qconfig", "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit", "default_per_channel_qconfig", "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig", "default_qat_qconfig", "default_qat_qconfig_v2", "default_qconfig",
    "default_quint8_weight_qconfig", "default_reuse_input_qconfig", "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig", "default_weight_only_qconfig", "float16_dynamic_qconfig", "float16_static_qconfig",
    "float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit", "get_default_qat_qconfig",
    "get_default_qat_qconfig_dict", "get_default_qconfig", "get_default_qconfig_dict", "per_channel_dynamic_qconfig",
    "qconfig_equals",
]  # fmt: skip


class QConfig(NamedTuple):
    """Functions that make an observer, such as `MinMaxObserver.with_args(dtype=quint8)`."""

    activation: Any
    weight: Any


class QConfigDynamic(NamedTuple):
    """The older form of a configuration for dynamic quantization."""

    activation: Any = fl.nn.Identity
    weight: Any = fl.nn.Identity


QConfigAny = QConfig | None

_DYNAMIC = observers.default_dynamic_quant_observer
_SYMMETRIC_WEIGHT = observers.weight_observer_range_neg_127_to_127
_SYMMETRIC_CHANNELS = observers.per_channel_weight_observer_range_neg_127_to_127
_SYMMETRIC_ACTIVATION = observers.HistogramObserver.with_args(dtype=qint8, reduce_range=False, eps=_NARROWEST)
_SYMMETRIC_QAT_ACTIVATION = fakes.FusedMovingAvgObsFakeQuantize.with_args(
    observer=observers.MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=qint8,
    reduce_range=False,
    eps=_NARROWEST,
)

default_qconfig = QConfig(observers.default_observer, observers.default_weight_observer)
default_debug_qconfig = QConfig(observers.default_debug_observer, observers.default_weight_observer)
default_per_channel_qconfig = QConfig(observers.default_observer, observers.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(_DYNAMIC, observers.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(_DYNAMIC, observers.default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    observers.PlaceholderObserver.with_args(dtype=fl.float16, is_dynamic=True),
    observers.PlaceholderObserver.with_args(dtype=fl.float16),
)
float16_static_qconfig = QConfig(
    observers.PlaceholderObserver.with_args(dtype=fl.float16), observers.PlaceholderObserver.with_args(dtype=fl.float16)
)
float_qparams_weight_only_qconfig = QConfig(
    observers.default_placeholder_observer, observers.default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    observers.default_placeholder_observer, observers.default_float_qparams_observer_4bit
)
default_quint8_weight_qconfig = QConfig(observers.HistogramObserver, observers.MinMaxObserver)
default_reuse_input_qconfig = QConfig(observers.default_reuse_input_observer, observers.NoopObserver)
default_symmetric_qnnpack_qconfig = QConfig(_SYMMETRIC_ACTIVATION, _SYMMETRIC_WEIGHT)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(_SYMMETRIC_ACTIVATION, _SYMMETRIC_CHANNELS)

default_qat_qconfig = QConfig(fakes.default_fake_quant, fakes.default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(fakes.default_dynamic_fake_quant, fakes.default_weight_fake_quant)
default_weight_only_qconfig = QConfig(fl.nn.Identity, fakes.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fakes.default_fake_quant, fl.nn.Identity)
default_qat_qconfig_v2 = QConfig(fakes.default_fused_act_fake_quant, fakes.default_fused_wt_fake_quant)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    _SYMMETRIC_QAT_ACTIVATION, fakes.fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _SYMMETRIC_QAT_ACTIVATION, fakes.fused_per_channel_wt_fake_quant_range_neg_127_to_127
)
default_embedding_qat_qconfig = QConfig(
    observers.NoopObserver.with_args(dtype=fl.float32), fakes.default_embedding_fake_quant
)
default_embedding_qat_qconfig_4bit = QConfig(
    observers.NoopObserver.with_args(dtype=fl.float32), fakes.default_embedding_fake_quant_4bit
)


def _histogram(**options: Any) -> Any:
    return observers.HistogramObserver.with_args(**options)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """What PyTorch uses for a backend; here all compute the same."""
    _check_version("get_default_qconfig", version, 0)
    channels = observers.default_per_channel_weight_observer
    table = {
        "x86": (_histogram(reduce_range=True), channels),
        "fbgemm": (_histogram(reduce_range=True), channels),
        "onednn": (_histogram(reduce_range=False), channels),
        "qnnpack": (_histogram(reduce_range=False), observers.default_weight_observer),
    }
    return QConfig(*_of_backend("get_default_qconfig", table, backend))


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The same for training with fake quantization."""
    _check_version("get_default_qat_qconfig", version, 1)
    kind = fakes.FusedMovingAvgObsFakeQuantize if version == 1 else fakes.FakeQuantize
    average = observers.MovingAverageMinMaxObserver
    halved = kind.with_args(observer=average, quant_min=0, quant_max=255, reduce_range=True)
    whole = kind.with_args(observer=average, quant_min=0, quant_max=255, reduce_range=False)
    plain = kind.with_args(observer=average, quant_min=0, quant_max=255)
    channels = fakes.default_fused_per_channel_wt_fake_quant if version else fakes.default_per_channel_weight_fake_quant
    single = fakes.default_fused_wt_fake_quant if version else fakes.default_weight_fake_quant
    table = {
        "x86": (halved, channels), "fbgemm": (halved, channels), "onednn": (plain, channels), "qnnpack": (whole, single),
    }  # fmt: skip
    return QConfig(*_of_backend("get_default_qat_qconfig", table, backend))


def _check_version(name: str, version: int, newest: int) -> None:
    if not 0 <= version <= newest:
        raise AssertionError(f"[{name}] expected a version up to {newest}, got {version}")


def _of_backend(name: str, table: dict[str, Any], backend: str) -> Any:
    if backend not in table:
        raise AssertionError(f"[{name}] expected one of {', '.join(table)}, got {backend!r}")
    return table[backend]


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    from flambeau.ao.quantization.qconfig_mapping import get_default_qconfig_mapping

    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    from flambeau.ao.quantization.qconfig_mapping import get_default_qat_qconfig_mapping

    return get_default_qat_qconfig_mapping(backend, version).to_dict()


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two configurations make the same observers."""
    if q1 is None or q2 is None:
        return q1 == q2
    return all(_same(getattr(q1, part), getattr(q2, part)) for part in ("activation", "weight"))


def _same(a: Any, b: Any) -> bool:
    describe = lambda f: (getattr(f, "func", f), getattr(f, "args", ()), getattr(f, "keywords", {}))  # noqa: E731
    return a is b or describe(a) == describe(b)  # type: ignore[no-untyped-call]


_DYNAMIC_BY_DTYPE = {
    qint8: default_dynamic_qconfig,
    fl.float16: float16_dynamic_qconfig,
    quint8: float_qparams_weight_only_qconfig,
}
