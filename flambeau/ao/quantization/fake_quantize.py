"""Modules that round tensors to a grid in floating point: observers for training that knows of quantization."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint4x2,
    quint8,
)
from flambeau.ao.quantization.observer import (
    _NARROWEST,
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    _PartialWrapper,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
    range_of,
)
from flambeau.nn.modules.module import Module

__all__ = [
    "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize", "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant", "default_dynamic_fake_quant", "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit", "default_fake_quant", "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant", "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant", "default_histogram_fake_quant", "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant", "default_weight_fake_quant", "disable_fake_quant", "disable_observer",
    "enable_fake_quant", "enable_observer", "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]  # fmt: skip

_PER_CHANNEL = (per_channel_symmetric, per_channel_affine, per_channel_affine_float_qparams)


class FakeQuantizeBase(Module):
    """What all share: two switches, for rounding and for observing."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", fl.tensor([1], dtype=fl.uint8))
        self.register_buffer("observer_enabled", fl.tensor([1], dtype=fl.uint8))

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point for what was seen."""
        raise RuntimeError(f"[{type(self).__name__}] expected a module that chooses a grid, got one that does not")

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> _PartialWrapper:
        # The observer is made anew for each module; this function keeps its arguments.
        return _PartialWrapper(cls, **kwargs)


class FakeQuantize(FakeQuantizeBase):
    """Rounds to the grid that an observer chooses."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: int | None = None, quant_max: int | None = None,
        is_dynamic: bool = False, **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if quant_min is not None and quant_max is not None:
            self._check_range(observer, quant_min, quant_max, observer_kwargs)
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        observer_kwargs["is_dynamic"] = is_dynamic
        self.activation_post_process = observer(**observer_kwargs)
        watch = self.activation_post_process
        self.quant_min, self.quant_max, self.is_dynamic = watch.quant_min, watch.quant_max, is_dynamic
        self.dtype, self.qscheme = watch.dtype, watch.qscheme
        self.ch_axis = getattr(watch, "ch_axis", -1)
        self.is_per_channel = self.qscheme in _PER_CHANNEL
        float_zero = self.qscheme is per_channel_affine_float_qparams
        self.register_buffer("scale", fl.tensor([1.0], dtype=fl.float))
        self.register_buffer("zero_point", fl.tensor([0], dtype=fl.float if float_zero else fl.int))

    @staticmethod
    def _check_range(observer: Any, quant_min: int, quant_max: int, options: dict[str, Any]) -> None:
        if quant_min > quant_max:
            raise AssertionError(f"[FakeQuantize] expected quant_min <= quant_max, got {quant_min} and {quant_max}")
        dtype = options.get("dtype", getattr(observer, "keywords", {}).get("dtype", quint8))
        low, high = range_of(dtype)
        if quant_min < low or quant_max > high:
            raise AssertionError(
                f"[FakeQuantize] expected a range inside {low} to {high} of {dtype}, got {quant_min} to {quant_max}"
            )

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            scale, zero_point = self.calculate_qparams()
            if self.scale.shape != scale.shape:
                self.scale.resize_(scale.shape)
                self.zero_point.resize_(zero_point.shape)
            self.scale.copy_(scale)
            self.zero_point.copy_(zero_point)
        if self.fake_quant_enabled[0] != 1:
            return X
        if self.is_per_channel:
            return fl.fake_quantize_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, self.quant_min, self.quant_max
            )
        return fl.fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, self.quant_min, self.quant_max)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={self.quant_min}, quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):  # their shape is that of the tensor that was seen
            if prefix + name in state_dict and getattr(self, name).shape != state_dict[prefix + name].shape:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds to a grid that is known beforehand."""

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError(f"[FixedQParamsFakeQuantize] expected a FixedQParamsObserver, got {observer}")
        self._observer_ctr = observer
        self.scale = self.activation_post_process.scale
        self.zero_point = self.activation_post_process.zero_point
        if self.qscheme not in (per_tensor_affine, per_tensor_symmetric):
            raise AssertionError(f"[FixedQParamsFakeQuantize] expected one scale for a tensor, got {self.qscheme}")

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        return self.scale, self.zero_point


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """A moving average of the range and rounding in one function."""

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: int = 0, quant_max: int = 255, is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(observer, quant_min, quant_max, is_dynamic, **observer_kwargs)
        if not isinstance(
            self.activation_post_process, (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        ):
            raise AssertionError(
                f"[FusedMovingAvgObsFakeQuantize] expected an observer of moving averages, got {observer}"
            )
        self.register_buffer("fake_quant_enabled", fl.tensor([1], dtype=fl.long))
        self.register_buffer("observer_enabled", fl.tensor([1], dtype=fl.long))
        self.is_symmetric_quant = self.qscheme in (per_tensor_symmetric, per_channel_symmetric)

    def forward(self, X: Tensor) -> Tensor:
        watch = self.activation_post_process
        return fl.fused_moving_avg_obs_fake_quant(
            X, self.observer_enabled, self.fake_quant_enabled, watch.min_val, watch.max_val, self.scale, self.zero_point,
            watch.averaging_constant, watch.quant_min, watch.quant_max, self.ch_axis, self.is_per_channel,
            self.is_symmetric_quant,
        )  # fmt: skip


default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=0,
    quant_max=255,
    dtype=quint8,
    qscheme=per_tensor_affine,
    reduce_range=True,
)
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8, qscheme=per_tensor_symmetric,
    reduce_range=False,
)  # fmt: skip
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=0,
    quant_max=255,
    is_dynamic=True,
    dtype=quint8,
    averaging_constant=1,
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8, qscheme=per_channel_symmetric,
    reduce_range=False, ch_axis=0,
)  # fmt: skip
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, qscheme=per_channel_affine_float_qparams, dtype=quint8, quant_min=0,
    quant_max=255, ch_axis=0, averaging_constant=1,
)  # fmt: skip
default_embedding_fake_quant_4bit = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, qscheme=per_channel_affine_float_qparams, ch_axis=0, dtype=quint4x2,
    averaging_constant=1,
)  # fmt: skip
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, quant_min=0, quant_max=255, dtype=quint8, qscheme=per_tensor_affine, reduce_range=True
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8, qscheme=per_tensor_symmetric
)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=qint8,
    qscheme=per_channel_symmetric,
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-127, quant_max=127, dtype=qint8, qscheme=per_tensor_symmetric,
    eps=_NARROWEST,
)  # fmt: skip
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-127, quant_max=127, dtype=qint8, qscheme=per_channel_symmetric,
    eps=_NARROWEST,
)  # fmt: skip


def disable_fake_quant(mod: Any) -> None:
    """For `apply`: modules round nothing."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Any) -> None:
    """For `apply`: modules round to their grids."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Any) -> None:
    """For `apply`: grids stay as they are."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Any) -> None:
    """For `apply`: grids follow what modules see."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()
