"""A linear layer that multiplies 8-bit floats, forward and backward."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, nn
from flambeau.ao.torchao.float8.casting import Float8Operand, cast_to_float8, multiply_float8
from flambeau.ao.torchao.float8.config import CastConfig, Float8LinearConfig, ScalingGranularity, ScalingType

__all__ = ["Float8Linear"]


def _is_whole(cast: CastConfig) -> bool:
    """Whether one scale is for all numbers, so that rows and columns have the same numbers."""
    return cast.scaling_type is not ScalingType.DISABLED and cast.scaling_granularity is ScalingGranularity.TENSORWISE


class _Float8Product(fl.autograd.Function):
    """x @ weight.t(), of matrices, with delayed scales of both and of the gradient, or None.

    The gradient of `grad_slot`, an element that nothing reads, is the largest gradient of the output: so it leaves backward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        config: Float8LinearConfig,
        scales: tuple[Tensor | None, ...],
        grad_slot: Tensor | None,
    ) -> Tensor:
        ctx.config, ctx.grad_scale, ctx.dtypes = config, scales[2], (x.dtype, weight.dtype)
        if config.cast_config_input.scaling_type is ScalingType.DISABLED:
            ctx.whole = False
            ctx.save_for_backward(x, weight)
            return x @ weight.to(x.dtype).t()
        power = config.round_scales_to_power_of_2
        left = cast_to_float8(x, config.cast_config_input, 1, power, scales[0])
        right = cast_to_float8(weight, config.cast_config_weight, 1, power, scales[1])
        pairs = (
            (config.cast_config_input, config.cast_config_input_for_grad_weight),
            (config.cast_config_weight, config.cast_config_weight_for_grad_input),
        )
        ctx.whole = all(_is_whole(cast) and cast == again for cast, again in pairs)
        ctx.save_for_backward(*((*left, *right) if ctx.whole else (x, weight)))
        return multiply_float8(left, right, x.dtype, config.gemm_config_output.use_fast_accum, config.pad_inner_dim)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        config: Float8LinearConfig = ctx.config
        largest = grad.detach().abs().amax().float() if ctx.needs_input_grad[4] else None
        cast, again = config.cast_config_grad_output, config.cast_config_grad_output_for_grad_weight
        small: Tensor | Float8Operand = grad
        if cast.scaling_type is not ScalingType.DISABLED:
            small = cast_to_float8(grad, cast, 1, config.round_scales_to_power_of_2, ctx.grad_scale)
        grad_x = _grad_input(ctx, grad, small) if ctx.needs_input_grad[0] else None
        shared = cast == again and _is_whole(cast)
        grad_weight = _grad_weight(ctx, grad, small if shared else grad) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, None, None, largest


def _saved(ctx: Any, which: int) -> Tensor | Float8Operand:
    """x (0) or the weight (1), as it is or in 8-bit floats."""
    saved = ctx.saved_tensors
    return Float8Operand(saved[2 * which], saved[2 * which + 1]) if ctx.whole else saved[which]


def _turned(value: Tensor | Float8Operand, cast: CastConfig, power: bool) -> Float8Operand:
    """The transposed matrix with scales of its rows."""
    if isinstance(value, Float8Operand):
        return Float8Operand(value.numbers.t().contiguous(), value.inverse_scale)
    return cast_to_float8(value.t(), cast, 1, power)


def _grad_input(ctx: Any, grad: Tensor, small: Tensor | Float8Operand) -> Tensor:
    """grad @ weight; `small` is the gradient as this product takes it."""
    config: Float8LinearConfig = ctx.config
    weight = _saved(ctx, 1)
    if isinstance(small, Tensor):
        assert isinstance(weight, Tensor)
        return (grad @ weight.to(grad.dtype)).to(ctx.dtypes[0])
    right = _turned(weight, config.cast_config_weight_for_grad_input, config.round_scales_to_power_of_2)
    return multiply_float8(
        small, right, ctx.dtypes[0], config.gemm_config_grad_input.use_fast_accum, config.pad_inner_dim
    )


def _grad_weight(ctx: Any, grad: Tensor, small: Tensor | Float8Operand) -> Tensor:
    """grad.t() @ x; `small` is the gradient with one scale, or as it is."""
    config: Float8LinearConfig = ctx.config
    x, cast = _saved(ctx, 0), config.cast_config_grad_output_for_grad_weight
    if cast.scaling_type is ScalingType.DISABLED:
        assert isinstance(x, Tensor)
        return (grad.t() @ x.to(grad.dtype)).to(ctx.dtypes[1])
    power = config.round_scales_to_power_of_2
    left, right = _turned(small, cast, power), _turned(x, config.cast_config_input_for_grad_weight, power)
    product = multiply_float8(
        left, right, grad.dtype, config.gemm_config_grad_weight.use_fast_accum, config.pad_inner_dim
    )
    return product.to(ctx.dtypes[1])


_KINDS = ("input", "weight", "grad_output")


class Float8Linear(nn.Linear):
    """A linear layer whose three products are of 8-bit floats; its parameters are those of a plain one.

    With delayed scales it has for input, weight and grad_output the buffers `fp8_amax_*`, `fp8_amax_history_*` and `fp8_scale_*`.
    """

    def __init__(self, *args: Any, config: Float8LinearConfig, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.config = config
        self._make_history()

    def _make_history(self) -> None:
        casts = (self.config.cast_config_input, self.config.cast_config_weight, self.config.cast_config_grad_output)
        self.delayed_kinds = [
            k for k, cast in zip(_KINDS, casts, strict=True) if cast.scaling_type is ScalingType.DELAYED
        ]
        device = self.weight.device
        for kind in self.delayed_kinds:
            self.register_buffer(f"fp8_amax_{kind}", fl.zeros((), device=device))
            self.register_buffer(f"fp8_amax_history_{kind}", fl.zeros(self.config.amax_history_len, device=device))
            self.register_buffer(f"fp8_scale_{kind}", fl.ones((), device=device))
        if "grad_output" in self.delayed_kinds:
            self.fp8_amax_grad_output.requires_grad_()

    def _delayed(self, kind: str, value: Tensor | None = None) -> Tensor | None:
        """The scale of the steps before; notes the largest value of this one."""
        if kind not in self.delayed_kinds:
            return None
        if value is not None and self.training:
            with fl.no_grad():
                self._buffers[f"fp8_amax_{kind}"].copy_(value.detach().abs().amax())
        return self._buffers[f"fp8_scale_{kind}"]

    def forward(self, input: Tensor) -> Tensor:
        if fl.is_autocast_enabled(input.device.type):
            input = input.to(fl.get_autocast_dtype(input.device.type))
        rows = input.reshape(-1, self.in_features)
        with fl.autocast(input.device.type, enabled=False):
            scales = (self._delayed("input", rows), self._delayed("weight", self.weight), self._delayed("grad_output"))
            slot = self._buffers.get("fp8_amax_grad_output")
            output = _Float8Product.apply(rows, self.weight, self.config, scales, slot)
            output = output.reshape(*input.shape[:-1], self.out_features)
            return output if self.bias is None else output + self.bias.to(output.dtype)

    def extra_repr(self) -> str:
        c = self.config
        parts = [f"i:{c.cast_config_input.short_str()}", f"w:{c.cast_config_weight.short_str()}"]
        parts.append(f"go:{c.cast_config_grad_output.short_str()}")
        again = (
            ("i_gw", c.cast_config_input_for_grad_weight, c.cast_config_input),
            ("w_gi", c.cast_config_weight_for_grad_input, c.cast_config_weight),
            ("go_gw", c.cast_config_grad_output_for_grad_weight, c.cast_config_grad_output),
        )
        parts += [f"{name}:{cast.short_str()}" for name, cast, first in again if cast != first]
        return f"{super().extra_repr()}, cast_configs={','.join(parts)}"

    @classmethod
    def from_float(cls, mod: nn.Linear, config: Float8LinearConfig | None = None) -> Float8Linear:
        """A layer with the parameters of a plain one."""
        if config is None:
            config = Float8LinearConfig()
        with fl.device("meta"):
            layer = cls(mod.in_features, mod.out_features, bias=False, config=config)
        layer.weight, layer.bias, layer.training = mod.weight, mod.bias, mod.training
        layer._make_history()
        return layer
