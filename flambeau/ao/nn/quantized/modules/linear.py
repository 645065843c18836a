"""Linear layers on quantized tensors."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor, _ops
from flambeau._tensor.quantized_types import qint8
from flambeau.ao.nn.quantized.modules.base import WeightedQuantizedModule
from flambeau.ao.quantized_tensor import Grid, QuantizedTensor, quantize_per_tensor
from flambeau.nn.modules.module import Module

__all__ = ["Linear", "LinearPackedParams"]


class LinearPackedParams(Module):
    """Weight and bias of a layer, under the names that they have in PyTorch's checkpoints."""

    _version = 3  # of that layout

    def __init__(self, dtype: Any = qint8) -> None:
        super().__init__()
        self.dtype = dtype
        self._packed_params: tuple[Any, Any] = (None, None)

    def set_weight_bias(self, weight: Any, bias: Tensor | None) -> None:
        self._packed_params = (weight, bias)

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._packed_params

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._packed_params

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, *rest: Any
    ) -> None:
        if prefix + "weight" in state_dict:  # the layout before the third
            state_dict[prefix + "_packed_params"] = (state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias"))
            state_dict.setdefault(prefix + "dtype", qint8)
        for name in ("dtype", "_packed_params"):
            if prefix + name in state_dict:
                setattr(self, name, state_dict.pop(prefix + name))
            elif strict:
                missing.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, missing, *rest)

    def __repr__(self) -> str:
        return repr(self._packed_params)


class Linear(WeightedQuantizedModule):
    """A linear layer: integers in, integers out."""

    _FLOAT_MODULE = (fl.nn.Linear,)
    _version = 3  # of the layout in checkpoints

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._packed_params = LinearPackedParams(dtype)
        zeros = fl.zeros(out_features, in_features)
        weight = quantize_per_tensor(zeros, 1.0, 0, qint8) if dtype is qint8 else zeros.to(dtype)
        self.set_weight_bias(weight, fl.zeros(out_features) if bias_ else None)

    def set_weight_bias(self, w: Any, b: Tensor | None) -> None:
        self._packed_params.set_weight_bias(w, None if b is None else b.detach().float())
        self._operands = self._kernel_operands()

    def _weight_bias(self) -> tuple[Any, Any]:
        return self._packed_params._weight_bias()

    @property
    def _weight(self) -> Any:
        return self._packed_params._packed_params[0]

    @property
    def _bias(self) -> Any:
        return self._packed_params._packed_params[1]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("weight", "bias"):  # where the first layout has them
            if prefix + name in state_dict:
                state_dict[f"{prefix}_packed_params.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._operands = None

    @classmethod
    def _like(cls, layer: Any) -> Linear:
        return cls(layer.in_features, layer.out_features, layer.bias is not None)

    def packed(self, weight: Tensor) -> Tensor:
        return _ops._int8_pack(weight)

    def forward(self, x: Any) -> QuantizedTensor:
        return self.on_grid(self._input(x), self.scale, self.zero_point, self.post_op)

    def on_grid(self, x: QuantizedTensor, scale: float, zero_point: int, post_op: str, *other: Any) -> QuantizedTensor:
        """The result on another grid than the layer's, with an activation or sum behind the product."""
        integers = x.int_repr()
        result = _ops._int8_linear(
            integers,
            x.q_scale(),
            x.q_zero_point(),
            *self.operands(),
            scale,
            zero_point,
            integers.dtype,
            post_op,
            *other,
        )
        return Grid(x.dtype, scale, zero_point).hold(result)

    def _script_form(self) -> Any:
        from flambeau.ao.quantized_operators.layers import PackedLinear
        from flambeau.jit._library import quantized as forms

        function = getattr(forms.quantized, "linear" if self.post_op == "none" else f"linear_{self.post_op}")
        return forms.Packed(
            _function=function, _packed_params=PackedLinear(self), scale=self.scale, zero_point=self.zero_point
        )

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, {super().extra_repr()}, "
            f"qscheme={self.weight().qscheme()}"
        )

    @classmethod
    def from_reference(cls, ref_qlinear: Any, output_scale: float, output_zero_point: int) -> Linear:
        """From a reference module: a float layer that knows the grid of its weight."""
        layer = cls(ref_qlinear.in_features, ref_qlinear.out_features)
        layer.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        layer.scale, layer.zero_point = float(output_scale), int(output_zero_point)
        return layer
