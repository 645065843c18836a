"""What quantized layers share: the grid of their results, and weights on a grid of their own.

State dicts have PyTorch's layout: scale and zero point of the result as tensors, and the weight as a quantized tensor.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    qint8,
)
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor, quantize_per_channel, quantize_per_tensor
from flambeau.nn.modules.module import Module

__all__ = ["OnGrid", "WeightedQuantizedModule", "observed_weight", "quantized_weight"]


class OnGrid(Module):
    """A module with quantized results: scale and zero point of them."""

    grid_is_saved = True  # PyTorch leaves it out of the state dicts of a few activations
    grid_shape: tuple[int, ...] = ()  # of scale and zero point in checkpoints

    def __init__(self, scale: float = 1.0, zero_point: int = 0) -> None:
        super().__init__()
        self.scale, self.zero_point = float(scale), int(zero_point)

    def _set_grid(self, observer: Any) -> None:
        scale, zero_point = observer.calculate_qparams()
        self.scale, self.zero_point = float(scale.item()), int(zero_point.item())

    def _quantized(self, values: Tensor, dtype: Any) -> QuantizedTensor:
        return Grid(dtype, self.scale, self.zero_point).quantize(values)

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.grid_is_saved:
            destination[prefix + "scale"] = fl.full(self.grid_shape, self.scale)
            destination[prefix + "zero_point"] = fl.full(self.grid_shape, self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *rest: Any
    ) -> None:
        if self.grid_is_saved:
            for name, kind in (("scale", float), ("zero_point", int)):
                if prefix + name in state_dict:
                    setattr(self, name, kind(state_dict.pop(prefix + name)))
                elif strict:
                    missing.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, *rest)


def quantized_weight(weight: Tensor, observer: Any) -> QuantizedTensor:
    """A weight on the grid that an observer or a fake quantization has chosen."""
    scale, zero_point = observer.calculate_qparams()
    weight = weight.detach().float()
    schemes = (per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams)
    if observer.qscheme in schemes:
        weight = quantize_per_channel(weight, scale, zero_point, getattr(observer, "ch_axis", 0), observer.dtype)
    else:
        weight = quantize_per_tensor(weight, scale, zero_point, observer.dtype)
    low, high = weight._grid.bounds
    ends = getattr(observer, "quant_min", low), getattr(observer, "quant_max", high)
    return weight if ends == (low, high) else weight._grid.hold(weight.int_repr().clamp(*ends))


_quantize_weight = quantized_weight


def observed_weight(mod: Any, precomputed: bool = False) -> QuantizedTensor:
    """The weight of a float or fake-quantizing layer, on its grid."""
    observer = getattr(mod, "weight_fake_quant", None)
    if observer is None:
        observer = mod.qconfig.weight()
        precomputed = False
    if not precomputed:
        observer(mod.weight)
    if observer.dtype is not qint8 and observer.dtype is not fl.int8:
        raise AssertionError(f"[from_float] expected weights in qint8, got {observer.dtype}")
    return quantized_weight(mod.weight, observer)


class WeightedQuantizedModule(OnGrid):
    """A layer with a weight in eight bits and a bias in float32."""

    post_op = "none"
    _weight: Any = None
    _bias: Any = None
    _operands: tuple[Any, ...] | None = None  # what `operands` returned for the present weight

    def set_weight_bias(self, w: QuantizedTensor | None, b: Tensor | None) -> None:
        """Gives the layer its weight and bias."""
        self._weight, self._bias = w, None if b is None else b.detach().float()
        self._operands = self._kernel_operands()

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._weight, self._bias

    def weight(self) -> Any:
        """The weight as a quantized tensor."""
        return self._weight

    def bias(self) -> Tensor | None:
        return self._bias

    def packed(self, weight: Tensor) -> Tensor:
        """The weight as the kernel of the layer reads it."""
        raise TypeError(f"[{type(self).__name__}] expected a layer, got a base class")

    def operands(self) -> tuple[Any, ...]:
        """Integers of the weight, the same as the kernel reads them, scales, zero points and bias: as the operators take them.

        They are plain tensors, so that a layer on plain tensors can be captured.
        """
        if self._operands is None:  # the weight came from a checkpoint
            self._operands = self._kernel_operands()
        return self._operands

    def _kernel_operands(self) -> tuple[Any, ...]:
        weight = self._weight
        if not isinstance(weight, QuantizedTensor):
            return ()
        grid = weight._grid
        scales = fl.as_tensor(grid.scale, dtype=fl.float32).reshape(-1)
        zero_points = fl.as_tensor(grid.zero_point).to(fl.int32).reshape(-1)
        integers = weight.int_repr()
        return integers, self.packed(integers), scales, zero_points if bool(zero_points.any()) else None, self._bias

    def _input(self, x: Any) -> QuantizedTensor:
        if not isinstance(x, QuantizedTensor):
            raise NotImplementedError(
                f"[{self._get_name()}] expected a quantized tensor, got {type(x).__name__}: put a QuantStub before the layer"
            )
        return x

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_operands": None}

    def __deepcopy__(self, memo: Any) -> Any:
        import copy

        clone = type(self).__new__(type(self))
        memo[id(self)] = clone
        clone.__dict__ = copy.deepcopy(self.__getstate__(), memo)
        return clone

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """A layer that was observed or trained with fake quantization, or one with an activation behind it."""
        observer = mod.activation_post_process
        layer = mod[0] if isinstance(mod, fl.nn.Sequential) else mod
        if not hasattr(layer, "qconfig"):
            layer.qconfig = mod.qconfig
        layer = _without_norm(layer)
        quantized = cls._like(layer)
        quantized.set_weight_bias(observed_weight(layer, use_precomputed_fake_quant), layer.bias)
        quantized._set_grid(observer)
        return quantized

    @classmethod
    def _like(cls, layer: Any) -> Any:
        raise TypeError(f"[{cls.__name__}] expected a layer that knows its float form, got a base class")


def _without_norm(layer: Any) -> Any:
    """A layer of fake quantization whose batch norm became part of weight and bias."""
    if not hasattr(layer, "bn"):
        return layer
    from flambeau.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

    norm = layer.bn
    fold = fuse_linear_bn_weights if isinstance(layer, fl.nn.Linear) else fuse_conv_bn_weights
    layer.weight, layer.bias = fold(
        layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    return layer
