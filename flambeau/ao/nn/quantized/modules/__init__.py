"""Layers on quantized tensors: integers in, integers out, with weights in eight bits.

| module | layers |
|---|---|
| `linear`, `conv` | products, by the operators `_quantized_linear` and `_quantized_conv` |
| `activation`, `normalization` | what is computed from the values and rounded to a grid |
| `embedding_ops` | tables with rows in eight or four bits |
| `functional_modules` | sums, products and joins as methods |
| `rnn`, `attention` | layers of several parts, each on a grid |
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau._compat import absent
from flambeau._tensor.quantized_types import quint8
from flambeau.ao.nn.quantized.modules import activation, conv, embedding_ops, functional_modules, linear, normalization
from flambeau.ao.nn.quantized.modules.activation import *  # noqa: F403
from flambeau.ao.nn.quantized.modules.conv import *  # noqa: F403
from flambeau.ao.nn.quantized.modules.embedding_ops import *  # noqa: F403
from flambeau.ao.nn.quantized.modules.functional_modules import *  # noqa: F403
from flambeau.ao.nn.quantized.modules.linear import *  # noqa: F403
from flambeau.ao.nn.quantized.modules.normalization import *  # noqa: F403
from flambeau.ao.quantized_tensor import QuantizedTensor, quantize_per_tensor
from flambeau.nn.modules.module import Module

__all__ = [
    "DeQuantize", "Quantize", *activation.__all__, *conv.__all__, *embedding_ops.__all__, *functional_modules.__all__,
    *linear.__all__, *normalization.__all__,
]  # fmt: skip


class Quantize(Module):
    """From float32 to a grid."""

    scale: Tensor
    zero_point: Tensor

    def __init__(self, scale: Any, zero_point: Any, dtype: Any = quint8, factory_kwargs: Any = None) -> None:
        super().__init__()
        self.register_buffer("scale", fl.as_tensor(scale, dtype=fl.float32).reshape(-1))
        self.register_buffer("zero_point", fl.as_tensor(zero_point, dtype=fl.int64).reshape(-1))
        self.dtype = dtype

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        form = forms.Quantize(dtype=self.dtype)
        form.register_buffer("scale", self.scale)
        form.register_buffer("zero_point", self.zero_point)
        return form

    def forward(self, X: Tensor) -> QuantizedTensor:
        return quantize_per_tensor(X, self.scale, self.zero_point, self.dtype)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        observer = mod.activation_post_process
        return cls(*observer.calculate_qparams(), observer.dtype)  # type: ignore[call-arg]

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(Module):
    """Back to float32."""

    def _script_form(self) -> Any:
        from flambeau.jit._library import quantized as forms

        return forms.DeQuantize()

    def forward(self, Xq: Any) -> Tensor:
        return Xq.dequantize()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        return cls()


_other = absent.names_of(__name__)


def __getattr__(name: str) -> Any:
    if name in ("LSTM", "MultiheadAttention"):
        from flambeau.ao.nn import quantized

        return getattr(quantized, name)
    return _other(name)
