"""Fake quantization whose scales and zero points are parameters of the model."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import per_channel_symmetric, per_tensor_symmetric
from flambeau.ao.quantization.fake_quantize import _PER_CHANNEL, FakeQuantizeBase

__all__ = ["_LearnableFakeQuantize"]


class _LearnableFakeQuantize(FakeQuantizeBase):
    """Grids are first set by an observer (`enable_static_estimate`), then trained (`enable_param_learning`)."""

    static_enabled: Tensor
    learning_enabled: Tensor

    def __init__(
        self, observer: Any, quant_min: int = 0, quant_max: int = 255, scale: float = 1.0, zero_point: float = 0.0,
        channel_len: int = -1, use_grad_scaling: bool = False, **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if not quant_min < quant_max:
            raise AssertionError(
                f"[LearnableFakeQuantize] expected quant_min < quant_max, got {quant_min} and {quant_max}"
            )
        self.quant_min, self.quant_max, self.use_grad_scaling = quant_min, quant_max, use_grad_scaling
        options = {**observer_kwargs, "quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = observer(**options)
        watch = self.activation_post_process
        self.dtype, self.qscheme, self.ch_axis = watch.dtype, watch.qscheme, getattr(watch, "ch_axis", -1)
        count = 1 if channel_len == -1 else channel_len
        if count <= 0:
            raise AssertionError(f"[LearnableFakeQuantize] expected a number of channels, got {channel_len}")
        self.scale = fl.nn.Parameter(fl.full((count,), float(scale)))
        self.zero_point = fl.nn.Parameter(fl.full((count,), float(zero_point)))
        self.register_buffer("static_enabled", fl.tensor([1], dtype=fl.uint8))
        self.register_buffer("learning_enabled", fl.tensor([0], dtype=fl.uint8))
        self.register_buffer("eps", fl.tensor([fl.finfo(fl.float32).eps]))

    def enable_param_learning(self) -> Any:
        """Scales and zero points are trained from now on."""
        return self._set(learning=True, estimate=False, fake=True)

    def enable_static_estimate(self) -> Any:
        """Scales and zero points are those of the observer."""
        return self._set(learning=False, estimate=True, fake=False)

    def enable_static_observation(self) -> Any:
        """The observer follows the values; nothing is rounded or trained."""
        return self._set(learning=False, estimate=True, fake=False)

    def _set(self, learning: bool, estimate: bool, fake: bool) -> Any:
        self.learning_enabled[0] = int(learning)
        self.scale.requires_grad_(learning)
        self.zero_point.requires_grad_(learning)
        self.static_enabled[0] = int(estimate)
        self.fake_quant_enabled[0] = int(fake)
        return self

    def toggle_observer_update(self, enabled: bool = True) -> Any:
        """Whether scales and zero points follow the observer."""
        self.static_enabled[0] = int(enabled)
        return self

    def toggle_qparam_learning(self, enabled: bool = True) -> Any:
        """Whether scales and zero points are trained."""
        self.learning_enabled[0] = int(enabled)
        self.scale.requires_grad_(enabled)
        self.zero_point.requires_grad_(enabled)
        return self

    def toggle_fake_quant(self, enabled: bool = True) -> Any:
        self.fake_quant_enabled[0] = int(enabled)
        return self

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        scale = self.scale.detach().clamp(min=self.eps.item())
        zero_point = self.zero_point.detach().round().clamp(self.quant_min, self.quant_max).long()
        return scale, zero_point

    def forward(self, X: Tensor) -> Tensor:
        if self.static_enabled[0] == 1:
            self.activation_post_process(X.detach())
            scale, zero_point = self.activation_post_process.calculate_qparams()
            with fl.no_grad():
                self.scale.data.copy_(scale)
                self.zero_point.data.copy_(zero_point)
        else:
            self.scale.data.clamp_(min=self.eps.item())
        if self.fake_quant_enabled[0] != 1:
            return X
        if self.qscheme in (per_tensor_symmetric, per_channel_symmetric):
            self.zero_point.data.zero_()
        factor = 1.0 / (X.numel() * self.quant_max) ** 0.5 if self.use_grad_scaling else 1.0
        ends = self.quant_min, self.quant_max
        if self.qscheme in _PER_CHANNEL:
            return fl._fake_quantize_learnable_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, *ends, factor
            )
        return fl._fake_quantize_learnable_per_tensor_affine(X, self.scale, self.zero_point, *ends, factor)
