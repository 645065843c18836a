"""Observers: modules that hand tensors on, note the range of their values, and choose a grid for them."""

from __future__ import annotations

import functools
import warnings
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
    qint32,
    quint2x4,
    quint4x2,
    quint8,
)
from flambeau.nn.modules.module import Module

__all__ = [
    "FixedQParamsObserver", "HistogramObserver", "MinMaxObserver", "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase", "PerChannelMinMaxObserver", "PlaceholderObserver",
    "RecordingObserver", "ReuseInputObserver", "UniformQuantizationObserverBase", "default_affine_fixed_qparams_observer",
    "default_debug_observer", "default_dynamic_quant_observer", "default_fixed_qparams_range_0to1_observer",
    "default_fixed_qparams_range_neg1to1_observer", "default_float_qparams_observer", "default_float_qparams_observer_4bit",
    "default_histogram_observer", "default_observer", "default_per_channel_weight_observer", "default_placeholder_observer",
    "default_reuse_input_observer", "default_symmetric_fixed_qparams_observer", "default_weight_observer",
    "get_observer_state_dict", "load_observer_state_dict", "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]  # fmt: skip

_RANGES = {
    qint8: (-128, 127), quint8: (0, 255), qint32: (-(2**31), 2**31 - 1), quint4x2: (0, 15),
    quint2x4: (0, 3), fl.uint16: (0, 2**16 - 1),
    fl.int8: (-128, 127), fl.uint8: (0, 255), fl.int16: (-(2**15), 2**15 - 1), fl.int32: (-(2**31), 2**31 - 1),
}  # fmt: skip
_UNSIGNED = (quint8, fl.uint8)
_NARROWEST = 2.0**-12  # steps of grids that mobile kernels can multiply by


class _PartialWrapper(functools.partial):
    """A class with some arguments: called to make a module, and given more by with_args.

    Arguments of `with_callable_args` are functions, called each time a module is made.
    """

    callable_args: dict[str, Any]

    def __new__(cls, function: Any, /, *args: Any, **kwargs: Any) -> _PartialWrapper:
        self = super().__new__(cls, function, *args, **kwargs)
        # partial() of a partial takes the inner one's function and arguments; callable arguments go along.
        self.callable_args = dict(getattr(function, "callable_args", {}))
        return self

    @property
    def p(self) -> _PartialWrapper:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        extra = {name: function() for name, function in self.callable_args.items() if name not in kwargs}
        return super().__call__(*args, **extra, **kwargs)

    def with_args(self, **kwargs: Any) -> _PartialWrapper:
        return _PartialWrapper(self, **kwargs)

    def with_callable_args(self, **kwargs: Any) -> _PartialWrapper:
        wrapper = _PartialWrapper(self)
        wrapper.callable_args.update(kwargs)
        return wrapper

    def __repr__(self) -> str:
        text = (
            super()
            .__repr__()
            .replace(type(self).__module__ + ".", "")
            .replace("_PartialWrapper", "functools.partial", 1)
        )
        return f"{text}{self.callable_args}"


def range_of(dtype: Any, reduce_range: bool = False) -> tuple[int, int]:
    """The smallest and largest integer of a dtype, or of half its range."""
    if dtype not in _RANGES:
        raise AssertionError(f"[observer] expected dtype qint8, quint8, qint32 or an integer dtype, got {dtype}")
    low, high = _RANGES[dtype]
    return (low // 2, high // 2) if reduce_range else (low, high)


def choose_grid(
    low: Tensor, high: Tensor, quant_min: int, quant_max: int, dtype: Any, eps: Tensor, has_customized_qrange: bool,
    qscheme: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Scales and zero points for ranges from `low` to `high`."""
    smallest, width = eps.to(low.device), float(quant_max - quant_min)
    if qscheme is per_channel_affine_float_qparams:
        scale = (high - low) / width
        scale = fl.where(scale > smallest, scale, fl.ones_like(scale))
        return scale.reshape(-1), (-low / scale).reshape(-1)
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)  # zero is on every grid
    if qscheme in (per_tensor_symmetric, per_channel_symmetric):
        reach = fl.maximum(-low, high)
        scale = fl.maximum(reach / (width / 2), smallest)
        middle = (quant_min + quant_max) // 2 if has_customized_qrange else 128
        zero_point = fl.full_like(scale, middle if dtype in _UNSIGNED else 0, dtype=fl.int64)
    else:
        scale = fl.maximum((high - low) / width, smallest)
        zero_point = (quant_min - (low / scale).round()).to(fl.int32)
        zero_point = zero_point.clamp(quant_min, quant_max)
    return scale.reshape(-1), zero_point.reshape(-1)


class ObserverBase(Module):
    """What all observers share: the dtype that they choose a grid for."""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @classmethod
    def with_args(cls, **kwargs: Any) -> _PartialWrapper:
        return _PartialWrapper(cls, **kwargs)

    @classmethod
    def with_callable_args(cls, **kwargs: Any) -> _PartialWrapper:
        return _PartialWrapper(cls).with_callable_args(**kwargs)

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Scale and zero point for what was seen."""
        raise RuntimeError(f"[{type(self).__name__}] expected an observer that chooses a grid, got one that does not")


class UniformQuantizationObserverBase(ObserverBase):
    """From a least and a greatest value to a scale and a zero point."""

    _version = 3  # of the layout in checkpoints

    def __init__(
        self,
        dtype: Any = quint8,
        qscheme: Any = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = 1.1920928955078125e-07,
        is_dynamic: bool = False,
        **ignored: Any,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.register_buffer("eps", fl.tensor([eps], dtype=fl.float32))
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        self.quant_min, self.quant_max = range_of(dtype, reduce_range)
        if self.has_customized_qrange:
            self._check_range(quant_min, quant_max)
            self.quant_min, self.quant_max = quant_min, quant_max  # type: ignore[assignment]
            if reduce_range:
                self.quant_min, self.quant_max = self.quant_min // 2, self.quant_max // 2

    def _check_range(self, low: Any, high: Any) -> None:
        widest = range_of(self.dtype)
        if not low <= 0 <= high and self.qscheme not in (per_tensor_symmetric, per_channel_symmetric):
            raise AssertionError(f"[observer] expected a range with zero in it, got {low} to {high}")
        if not low < high:
            raise AssertionError(f"[observer] expected quant_min < quant_max, got {low} and {high}")
        if low < widest[0] or high > widest[1]:
            raise AssertionError(f"[observer] expected a range inside {widest} of {self.dtype}, got {low} to {high}")

    def _calculate_qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        if not low.numel() or bool((low == float("inf")).all()):
            warnings.warn(
                "[observer] expected values before the grid is chosen, got none: must run observer before calling "
                "calculate_qparams. Returning default values.",
                stacklevel=3,
            )
            return fl.tensor([1.0]), fl.tensor([0])
        if not bool((low <= high).all()):
            raise AssertionError(f"[observer] expected min <= max, got {low} and {high}")
        ends = self.quant_min, self.quant_max
        return choose_grid(low, high, *ends, self.dtype, self.eps, self.has_customized_qrange, self.qscheme)

    def reset_min_max_vals(self) -> None:
        self.min_val, self.max_val = fl.tensor(float("inf")), fl.tensor(float("-inf"))


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest of all values."""

    min_val: Tensor
    max_val: Tensor

    def __init__(self, dtype: Any = quint8, qscheme: Any = per_tensor_affine, **options: Any) -> None:
        super().__init__(dtype, qscheme, **options)
        self.register_buffer("min_val", fl.tensor(float("inf")))
        self.register_buffer("max_val", fl.tensor(float("-inf")))

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            x = x_orig.detach().to(self.min_val.dtype)
            self.note(x.min(), x.max())
        return x_orig

    def note(self, low: Tensor, high: Tensor) -> None:
        self.min_val.copy_(fl.minimum(low, self.min_val))
        self.max_val.copy_(fl.maximum(high, self.max_val))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Averages of the least and the greatest value, over calls."""

    def __init__(
        self, averaging_constant: float = 0.01, dtype: Any = quint8, qscheme: Any = per_tensor_affine, **options: Any
    ) -> None:
        super().__init__(dtype, qscheme, **options)
        self.averaging_constant = averaging_constant

    def note(self, low: Tensor, high: Tensor) -> None:
        if bool(self.min_val == float("inf")):
            self.min_val.copy_(low)
            self.max_val.copy_(high)
        else:
            self.min_val.add_(self.averaging_constant * (low - self.min_val))
            self.max_val.add_(self.averaging_constant * (high - self.max_val))


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest value for each index of a dimension."""

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, ch_axis: int = 0, dtype: Any = quint8, qscheme: Any = per_channel_affine, **options: Any
    ) -> None:
        super().__init__(dtype, qscheme, **options)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", fl.tensor([]))
        self.register_buffer("max_val", fl.tensor([]))

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            rows = x_orig.detach().float().movedim(self.ch_axis, 0).flatten(1)
            self.note(rows.amin(1), rows.amax(1))
        return x_orig

    def note(self, low: Tensor, high: Tensor) -> None:
        if self.min_val.numel():
            low, high = fl.minimum(low, self.min_val), fl.maximum(high, self.max_val)
        self.min_val, self.max_val = low, high

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self._calculate_qparams(self.min_val, self.max_val)

    def reset_min_max_vals(self) -> None:
        self.min_val = self.max_val = fl.tensor([])

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):  # their shape is that of the tensor that was seen
            if f"{prefix}{name}s" in state_dict:  # as PyTorch called them before 1.10
                state_dict[prefix + name] = state_dict.pop(f"{prefix}{name}s")
            if prefix + name in state_dict:
                setattr(self, name, fl.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *args)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Averages of them, over calls."""

    def __init__(
        self, averaging_constant: float = 0.01, ch_axis: int = 0, dtype: Any = quint8, qscheme: Any = per_channel_affine,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(ch_axis, dtype, qscheme, **options)
        self.averaging_constant = averaging_constant

    def note(self, low: Tensor, high: Tensor) -> None:
        if self.min_val.numel():
            low = self.min_val + self.averaging_constant * (low - self.min_val)
            high = self.max_val + self.averaging_constant * (high - self.max_val)
        self.min_val, self.max_val = low, high


class HistogramObserver(UniformQuantizationObserverBase):
    """Counts of values in bins. The grid covers the part of the range for which the squared error is least."""

    histogram: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self, bins: int = 2048, dtype: Any = quint8, qscheme: Any = per_tensor_affine, reduce_range: bool = False, **options: Any
    ) -> None:  # fmt: skip
        super().__init__(dtype, qscheme, reduce_range, **options)
        self.bins, self.dst_nbins = bins, 256
        self.register_buffer("histogram", fl.zeros(bins))
        self.register_buffer("min_val", fl.tensor(float("inf")))
        self.register_buffer("max_val", fl.tensor(float("-inf")))

    def forward(self, x_orig: Tensor) -> Tensor:
        if not x_orig.numel():
            return x_orig
        x = x_orig.detach().float()
        low, high = x.min().item(), x.max().item()
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            warnings.warn("[HistogramObserver] expected finite values, got others; they are left out", stacklevel=2)
            return x_orig
        before = self.min_val.item(), self.max_val.item()
        if before[0] <= before[1] and before != (low, high):
            low, high = min(low, before[0]), max(high, before[1])
            self.histogram.copy_(self._moved(before, (low, high)))
        width = max(high - low, 0.0)
        if width:
            self.histogram += fl.histc(x, self.bins, min=low, max=high)
        else:
            self.histogram[0] += x.numel()
        self.min_val.fill_(low)
        self.max_val.fill_(high)
        return x_orig

    def _moved(self, old: tuple[float, float], new: tuple[float, float]) -> Tensor:
        """The counts in bins of a wider range, each shared out over those that its bin meets."""
        if old == new or new[1] == new[0]:
            return self.histogram.clone()
        step, width = (old[1] - old[0]) / self.bins, (new[1] - new[0]) / self.bins
        total = fl.cat([fl.zeros(1, dtype=fl.float64), self.histogram.double().cumsum(0)])
        wanted = new[0] + width * fl.arange(self.bins + 1, dtype=fl.float64)
        if not step:
            below = fl.where(wanted > old[0], total[-1], fl.zeros((), dtype=fl.float64))
            below[-1] = total[-1]
        else:
            place = ((wanted - old[0]) / step).clamp(0, self.bins)
            index = place.floor().long().clamp(max=self.bins - 1)
            part = place - index
            below = total[index] + part * (total[index + 1] - total[index])
        return below.diff().float()

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        if bool(self.min_val > self.max_val):
            return self._calculate_qparams(self.min_val, self.max_val)
        low, high = self._search()
        return self._calculate_qparams(fl.tensor(low), fl.tensor(high))

    def _error(self, first: int, last: int) -> float:
        """The squared error when the grid covers these bins, values being spread evenly in each bin."""
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        step = width * (last - first + 1) / self.dst_nbins
        if not step:
            return 0.0
        begin = (fl.arange(self.bins, dtype=fl.float64) - first) * width
        end = begin + width
        cell_of_begin = (begin / step).floor().clamp(0, self.dst_nbins - 1)
        cell_of_end = (end / step).floor().clamp(0, self.dst_nbins - 1)
        density = self.histogram.double() / width

        def part(start: Any, stop: Any) -> Any:
            return (stop**3 - start**3) / 3

        half = step / 2
        error = part(begin - (cell_of_begin + 0.5) * step, half)
        error = error + (cell_of_end - cell_of_begin - 1) * part(-half, half)
        error = error + part(-half, end - (cell_of_end + 0.5) * step)
        return float((density * error).sum().item())

    def _search(self) -> tuple[float, float]:
        """Clips quantiles of 1e-5 at either end, the one that takes away more bins, while the error falls."""
        low, width = self.min_val.item(), (self.max_val.item() - self.min_val.item()) / self.bins
        counts = self.histogram.double().cumsum(0).tolist()
        total, stride = counts[-1], 1e-5
        alpha, beta, first, last = 0.0, 1.0, 0, self.bins - 1
        best = float("inf")
        while alpha < beta:
            next_alpha, next_beta = alpha + stride, beta - stride
            left, right = first, last
            while left < last and counts[left] < next_alpha * total:
                left += 1
            while right > first and counts[right] > next_beta * total:
                right -= 1
            if left - first > last - right:
                new, alpha = (left, last), next_alpha
            else:
                new, beta = (first, right), next_beta
            if new == (first, last):
                continue
            error = self._error(*new)
            if error > best:
                break
            best, (first, last) = error, new
        return low + width * first, low + width * (last + 1)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class FixedQParamsObserver(ObserverBase):
    """A grid that is known beforehand, such as that of probabilities."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, scale: Any, zero_point: Any, dtype: Any = quint8, qscheme: Any = per_tensor_affine, quant_min: int = 0,
        quant_max: int = 255, is_dynamic: bool = False, **ignored: Any,
    ) -> None:  # fmt: skip
        if is_dynamic:
            raise NotImplementedError("[FixedQParamsObserver] expected a static grid, got is_dynamic=True")
        super().__init__(dtype)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", fl.tensor([scale], dtype=fl.float))
        self.register_buffer("zero_point", fl.tensor([zero_point], dtype=fl.int))

    def forward(self, X: Tensor) -> Tensor:
        return X

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Says how a tensor is to be quantized and notes nothing."""

    def __init__(
        self, dtype: Any = fl.float32, custom_op_name: str = "", compute_dtype: Any = None, quant_min: int | None = None,
        quant_max: int | None = None, qscheme: Any = None, eps: float | None = None, is_dynamic: bool = False, **ignored: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic or bool(compute_dtype))
        self.dtype = compute_dtype or dtype
        self.custom_op = custom_op_name
        self.quant_min, self.quant_max = quant_min, quant_max
        self.qscheme = per_tensor_affine if qscheme is None else qscheme
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class NoopObserver(PlaceholderObserver):
    """Notes nothing."""


class RecordingObserver(ObserverBase):
    """Keeps copies of all tensors, to look at them."""

    def __init__(self, dtype: Any = quint8) -> None:
        super().__init__(dtype)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        return self.tensor_val


class ReuseInputObserver(ObserverBase):
    """The result lies on the grid of the input."""

    def __init__(self) -> None:
        super().__init__(quint8)

    def forward(self, x: Tensor) -> Tensor:
        return x


def get_observer_state_dict(mod: Module) -> dict[str, Any]:
    """What the observers of a model have seen."""
    return {name: value for name, value in mod.state_dict().items() if "activation_post_process" in name}


def load_observer_state_dict(mod: Module, obs_dict: dict[str, Any]) -> None:
    """Gives the observers of a model what others have seen."""
    missing: list[str] = []
    unexpected: list[str] = []
    for name, module in mod.named_modules():
        if name.rpartition(".")[2] == "activation_post_process":
            prefix = f"{name}."
            own = {key: value for key, value in obs_dict.items() if key.startswith(prefix)}
            module._load_from_state_dict(own, prefix, {}, False, missing, unexpected, [])
    if missing or unexpected:
        raise RuntimeError(
            f"[load_observer_state_dict] expected what the observers keep, got missing {missing} and unexpected {unexpected}"
        )


def _is_activation_post_process(module: Any) -> bool:
    """Whether a module is an observer or a fake quantization."""
    from flambeau.ao.quantization.fake_quantize import FakeQuantizeBase

    return isinstance(module, (ObserverBase, FakeQuantizeBase))


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_reuse_input_observer = ReuseInputObserver
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=qint8, qscheme=per_tensor_symmetric, quant_min=-127, quant_max=127, eps=_NARROWEST
)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=qint8, qscheme=per_channel_symmetric)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=per_channel_symmetric, quant_min=-127, quant_max=127, eps=_NARROWEST
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=quint8, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=quint4x2, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=quint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
