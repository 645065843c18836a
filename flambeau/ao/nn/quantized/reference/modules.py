"""Float layers that round their weights to a grid before they use them: what quantized layers compute, in floating point.

Each is a subclass of the float layer. A weight `weight` has its grid in the buffers `weight_scale`, `weight_zero_point` and
`weight_axis`, and in the attributes `weight_qscheme` and `weight_dtype`, as PyTorch's have.
"""

from __future__ import annotations

import copy
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._tensor.quantized_types import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_tensor_affine,
    quint8,
)
from flambeau.nn.modules.module import Module

__all__ = [
    "GRU", "LSTM", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Embedding",
    "EmbeddingBag", "GRUCell", "LSTMCell", "Linear", "RNNCell",
]  # fmt: skip

_DEFAULT = {"qscheme": per_tensor_affine, "dtype": quint8, "scale": 1.0, "zero_point": 0}


class _Reference:
    """What the classes share; they come before the float layer among the bases."""

    _IS_REFERENCE = True
    _FLOAT_MODULE: Any = None
    weight_qscheme: Any
    weight_dtype: Any
    _buffers: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        grids = kwargs.pop("weight_qparams_dict", None)
        grid = kwargs.pop("weight_qparams", None)
        if "bias_" in kwargs:
            kwargs["bias"] = kwargs.pop("bias_")
        self._FLOAT_MODULE.__init__(self, *args, **kwargs)
        self._init_weight_qparams(grids if grid is None else {"weight": grid})

    def _weight_names(self) -> list[str]:
        """Parameters that are weights."""
        return [name for name in self._parameters if name.startswith("weight")]

    def _init_weight_qparams(self, grids: dict[str, Any] | None) -> None:
        grids = grids or {}
        self.is_decomposed = bool(grids.get("is_decomposed", False))
        for name in self._weight_names():
            self._set_grid(name, grids.get(name) or _DEFAULT)

    def _set_grid(self, name: str, grid: dict[str, Any]) -> None:
        scheme, dtype = grid["qscheme"], grid["dtype"]
        if scheme not in (None, per_tensor_affine, per_channel_affine, per_channel_affine_float_qparams):
            raise AssertionError(f"[reference] expected a grid per tensor or per channel, got {scheme}")
        setattr(self, f"{name}_qscheme", scheme)
        setattr(self, f"{name}_dtype", dtype)
        for end in ("quant_min", "quant_max"):
            setattr(self, f"{name}_{end}", grid.get(end))
        setattr(self, f"{name}_axis_int", int(grid.get("axis", 0) or 0))
        if scheme is None:
            return
        whole = fl.float32 if scheme is per_channel_affine_float_qparams else fl.int64
        buffers = (
            ("scale", fl.float32, grid["scale"]),
            ("zero_point", whole, grid["zero_point"]),
            ("axis", fl.int32, grid.get("axis", 0) or 0),
        )
        for end, kind, value in buffers:
            self.register_buffer(f"{name}_{end}", fl.as_tensor(value).detach().clone().to(kind))

    _grid_is_saved_whole = False  # whether scheme and dtype of the grid are in state dicts, too

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)  # type: ignore[misc]
        if self._grid_is_saved_whole:
            destination[f"{prefix}weight_qscheme"] = self.weight_qscheme
            destination[f"{prefix}weight_dtype"] = self.weight_dtype

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        if self._grid_is_saved_whole:
            for name in ("weight_qscheme", "weight_dtype"):
                if prefix + name in state_dict:
                    setattr(self, name, state_dict.pop(prefix + name))
            for name in ("weight_scale", "weight_zero_point"):  # their size follows from the scheme
                if prefix + name in state_dict and name in self._buffers:
                    setattr(self, name, self._buffers[name].new_empty(state_dict[prefix + name].shape))
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[misc]

    def _quantized(self, name: str) -> Any:
        weight, scheme = getattr(self, name), getattr(self, f"{name}_qscheme")
        if scheme is None:
            return weight
        scale, zero_point, dtype = (getattr(self, f"{name}_{end}") for end in ("scale", "zero_point", "dtype"))
        values = weight.detach().float()
        if scheme is per_tensor_affine:
            held = fl.quantize_per_tensor(values, scale, zero_point, dtype)
        else:
            held = fl.quantize_per_channel(values, scale, zero_point, int(getattr(self, f"{name}_axis")), dtype)
        low, high = held._grid.bounds
        ends = getattr(self, f"{name}_quant_min"), getattr(self, f"{name}_quant_max")
        ends = (low if ends[0] is None else ends[0], high if ends[1] is None else ends[1])
        return held if ends == (low, high) else held._grid.hold(held.int_repr().clamp(*ends))

    def _rounded(self, name: str) -> Tensor:
        held = self._quantized(name)
        return held.dequantize() if held.is_quantized else held

    def get_quantized_weight(self) -> Any:
        """The weight on its grid."""
        return self._quantized("weight")

    def get_weight(self) -> Tensor:
        """The values of the weight on its grid."""
        return self._rounded("weight")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        layer = self._FLOAT_MODULE.__new__(self._FLOAT_MODULE)
        layer.__dict__.update(self.__dict__)
        layer.__dict__["_parameters"] = dict(self._parameters)
        layer._parameters.update((name, self._rounded(name)) for name in self._weight_names())
        return self._FLOAT_MODULE.forward(layer, *args, **kwargs)

    @classmethod
    def from_float(cls, mod: Any, weight_qparams: dict[str, Any] | None = None) -> Any:
        """With the parameters of a float layer; the grid of its weight, or for several weights one for each name."""
        layer: Any = cls.__new__(cls)
        Module.__init__(layer)
        own = ("qconfig", "_forward_hooks", "_forward_pre_hooks", "_modules", "activation_post_process")
        layer.__dict__.update((name, copy.copy(value)) for name, value in mod.__dict__.items() if name not in own)
        layer._parameters = {
            name: None if p is None else fl.nn.Parameter(p.detach(), requires_grad=p.requires_grad)
            for name, p in mod._parameters.items()
        }
        one = weight_qparams is not None and "qscheme" in weight_qparams
        layer._init_weight_qparams({"weight": weight_qparams} if one else weight_qparams)
        return layer

    def _get_name(self) -> str:
        name = type(self).__name__.removesuffix("Bag")  # PyTorch shows a bag as a table
        return f"Quantized{name}(Reference)"


def _reference_of(name: str) -> Any:
    kind = getattr(fl.nn, name)
    doc = f"{name} with weights that are rounded to a grid."
    one_weight = "RNN" not in name and "LSTM" not in name and "GRU" not in name
    body = {"_FLOAT_MODULE": kind, "__module__": __name__, "__doc__": doc, "_grid_is_saved_whole": one_weight}
    return type(name, (_Reference, kind), body)


Linear, Embedding, EmbeddingBag = map(_reference_of, ("Linear", "Embedding", "EmbeddingBag"))
Conv1d, Conv2d, Conv3d = map(_reference_of, ("Conv1d", "Conv2d", "Conv3d"))
ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = map(
    _reference_of, ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
)
LSTM, GRU, LSTMCell, GRUCell, RNNCell = map(_reference_of, ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell"))
