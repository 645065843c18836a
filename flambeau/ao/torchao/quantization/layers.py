"""Linear layers with small weights, and `quantize_`, which puts them into a model.

A layer holds plain tensors, so that captured programs see operators and nothing else: integers or float8 numbers, and their
scales. `layer.weight` shows them as one tensor kind, `QuantizedWeight`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import Tensor, nn
from flambeau.ao.torchao.quantization.configs import AOBaseConfig, MappingType, ModuleFqnToConfig
from flambeau.nn.modules.module import Module

__all__ = ["QuantizedLinear", "QuantizedWeight", "quantize_"]

_LARGEST_FLOAT8 = 448.0  # of float8_e4m3fn


class QuantizedWeight:
    """A weight in a small dtype, with what brings it back."""

    def __init__(self, layer: QuantizedLinear) -> None:
        self._layer = layer
        self.shape, self.dtype = fl.Size((layer.out_features, layer.in_features)), layer.original_dtype
        self.device, self.requires_grad = layer.values.device, False

    def dequantize(self) -> Tensor:
        """The values, in the dtype that the weight had."""
        return self._layer.dequantized().to(self.dtype)

    def __repr__(self) -> str:
        return f"QuantizedWeight(scheme={self._layer.scheme!r}, shape={tuple(self.shape)}, dtype={self.dtype})"


class QuantizedLinear(Module):
    """A linear layer whose weight is stored in a small dtype."""

    values: Tensor
    scales: Tensor
    scheme = ""

    def __init__(self, layer: Any, config: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.original_dtype, self.training = layer.weight.dtype, layer.training
        bias = layer.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.store(layer.weight.detach(), config)

    def store(self, weight: Tensor, config: Any) -> None:
        """Registers the buffers of the scheme."""
        raise TypeError(f"[{type(self).__name__}] expected a layer with a scheme, got the base class")

    def dequantized(self) -> Tensor:
        return self.values.float() * self.scales.float().reshape(-1, 1)

    @property
    def weight(self) -> QuantizedWeight:
        return QuantizedWeight(self)

    def _flat(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.in_features)

    def _shaped(self, result: Tensor, x: Tensor) -> Tensor:
        result = result.reshape(*x.shape[:-1], self.out_features).to(x.dtype)
        return result if self.bias is None else result + self.bias.to(x.dtype)

    def extra_repr(self) -> str:
        text = f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        return f"{text}, scheme={self.scheme}"


def _row_scales(weight: Tensor, largest: float) -> Tensor:
    return (weight.float().abs().amax(1) / largest).clamp(min=fl.finfo(fl.float32).tiny)


class Int8Linear(QuantizedLinear):
    """Weights in int8 with a scale for each row."""

    scheme = "int8_weight"

    def store(self, weight: Tensor, config: Any) -> None:
        group = getattr(config, "group_size", None)
        if group is not None and group < self.in_features:
            raise NotImplementedError(f"[Int8WeightOnlyConfig] expected one group for a row, got group_size={group}")
        scales = _row_scales(weight, 127.0)
        self.register_buffer("values", (weight.float() / scales.unsqueeze(1)).round().clamp(-128, 127).to(fl.int8))
        self.register_buffer("scales", scales.to(self.original_dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self._shaped(fl.ops.aten._weight_int8pack_mm(self._flat(x), self.values, self.scales), x)


class Int4Linear(QuantizedLinear):
    """Weights in four bits with a scale for each group of a row, and a zero point unless groups are symmetric."""

    scheme = "int4_weight"

    def store(self, weight: Tensor, config: Any) -> None:
        self.group_size = config.group_size
        dtype = getattr(config, "scale_dtype", None) or self.original_dtype
        groups = weight.float().reshape(self.out_features, -1, self.group_size)
        # Scales and zeros are rounded first, so that places are the nearest for what the kernel computes.
        rounded = [t.to(dtype).float() for t in _group_grids(groups, config.mapping_type)]
        centered = groups - rounded[1] if len(rounded) == 2 else groups
        places = (centered / rounded[0]).round().add(8).clamp(0, 15).to(fl.int32)
        grid = fl.cat(rounded, 2).transpose(0, 1).contiguous().to(dtype)  # (groups, rows, 2 or 1)
        packed = fl.ops.aten._convert_weight_to_int4pack_for_cpu(places.reshape(weight.shape), 1)
        self.register_buffer("values", packed)
        self.register_buffer("scales", grid)

    def dequantized(self) -> Tensor:
        return self._product(fl.eye(self.in_features, dtype=self.original_dtype, device=self.values.device)).t().float()

    def _product(self, rows: Tensor) -> Tensor:
        grids = self.scales
        if grids.shape[2] == 1 and rows.device.type != "cpu":  # whose kernels want zeros
            grids = fl.cat([grids, fl.zeros_like(grids)], 2)
        return fl.ops.aten._weight_int4pack_mm_for_cpu(rows, self.values, self.group_size, grids)

    def forward(self, x: Tensor) -> Tensor:
        return self._shaped(self._product(self._flat(x)), x)


def _group_grids(groups: Tensor, mapping: MappingType) -> list[Tensor]:
    """The scales of groups, and for asymmetric ones the values in the middle of their grids."""
    low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
    if mapping is MappingType.ASYMMETRIC:
        scales = ((high - low) / 15).clamp(min=1e-6)
        return [scales, low + scales * 8]
    low, high = -low.clamp(max=0.0), high.clamp(min=0.0)
    whole = fl.maximum(low / 8, high / 7)
    scales = fl.maximum(low, high) / 7.5 if mapping is MappingType.SYMMETRIC else whole
    return [scales.clamp(min=1e-6)]


class Int8DynamicLinear(Int8Linear):
    """Weights in int8, activations in eight bits, each row of them on a grid that is chosen as it comes."""

    scheme = "int8_dynamic"
    packed: Tensor

    def store(self, weight: Tensor, config: Any) -> None:
        super().store(weight, config)
        self.scales = self.scales.float()
        self.register_buffer("packed", fl._ops._int8_pack(self.values), persistent=False)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        self.packed = fl._ops._int8_pack(self.values)

    def forward(self, x: Tensor) -> Tensor:
        product = fl._ops._int8_linear_dynamic(
            self._flat(x), self.values, self.packed, self.scales, None, None, reduce_range=False, per_row=True
        )
        return self._shaped(product, x)


class Float8Linear(QuantizedLinear):
    """Weights in float8 with a scale for each row."""

    scheme = "float8_weight"

    def store(self, weight: Tensor, config: Any) -> None:
        scales = _row_scales(weight, _LARGEST_FLOAT8)
        self.register_buffer("values", (weight.float() / scales.unsqueeze(1)).to(config.weight_dtype))
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.values.to(x.dtype) * self.scales.to(x.dtype).unsqueeze(1)
        return fl.nn.functional.linear(x, weight, None if self.bias is None else self.bias.to(x.dtype))


class Float8DynamicLinear(QuantizedLinear):
    """Weights and activations in float8."""

    scheme = "float8_dynamic"

    def store(self, weight: Tensor, config: Any) -> None:
        self.per_row, self.activation_dtype = config.per_row, config.activation_dtype
        values = weight.float()
        scales = _row_scales(values, _LARGEST_FLOAT8) if self.per_row else self._scale(values)
        self.register_buffer("values", (values / scales.reshape(-1, 1)).to(config.weight_dtype))
        self.register_buffer("scales", scales.reshape(-1, 1))

    @staticmethod
    def _scale(values: Tensor) -> Tensor:
        return (values.abs().amax() / _LARGEST_FLOAT8).clamp(min=1e-12).reshape(1)

    def forward(self, x: Tensor) -> Tensor:
        rows = self._flat(x).float()
        largest = rows.abs().amax(1, keepdim=True) if self.per_row else rows.abs().amax()
        scale = (largest / _LARGEST_FLOAT8).clamp(min=1e-12)
        small = (rows / scale).to(self.activation_dtype)
        other = self.scales.t() if self.per_row else self.scales.reshape(())
        out = fl.bfloat16 if x.dtype == fl.bfloat16 else fl.float32
        return self._shaped(fl._scaled_mm(small, self.values.t(), scale, other, out_dtype=out), x)


_LAYERS = {kind.scheme: kind for kind in (Int8Linear, Int4Linear, Int8DynamicLinear, Float8Linear, Float8DynamicLinear)}


def _is_linear(module: Any, name: str) -> bool:
    return type(module) in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear)


def quantize_(
    model: Module,
    config: AOBaseConfig,
    filter_fn: Callable[[Module, str], bool] | None = _is_linear,
    device: Any = None,
) -> None:
    """Replaces linear layers of a model by ones with small weights, in place.

    - filter_fn: which modules, by the module and its full name; by default all linear layers.
    - device: where the model is moved before.
    """
    if not isinstance(config, AOBaseConfig):
        raise TypeError(f"[quantize_] expected a configuration such as Int8WeightOnlyConfig(), got {config!r}")
    if device is not None:
        model.to(device)
    chosen = _is_linear if filter_fn is None else filter_fn
    for name, module in list(model.named_modules()):
        if not chosen(module, name) or isinstance(module, QuantizedLinear):
            continue
        own = config.of(name) if isinstance(config, ModuleFqnToConfig) else config
        if own is None or not isinstance(module, nn.Linear):
            continue
        if own.scheme == "int4_weight" and (module.in_features % own.group_size or module.out_features % 16):
            continue  # as torchao does: a row that groups do not divide stays as it is, and what kernels do not take
        path, _, last = name.rpartition(".")
        if not name:
            raise ValueError(
                "[quantize_] expected a model around the layers, got a single linear layer: wrap it in a Sequential"
            )
        setattr(model.get_submodule(path) if path else model, last, _LAYERS[own.scheme](module, own))
