"""Attention with projections as layers of their own; the attention itself is computed from the values."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau import Tensor, nn
from flambeau.ao.nn.quantized.modules.functional_modules import FloatFunctional
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub

__all__ = ["MultiheadAttention"]


def _as_bias(mask: Tensor | None, dtype: Any) -> Tensor | None:
    """A mask as what is added to the products: where it is set, nothing is attended to."""
    if mask is None or mask.is_floating_point():
        return mask
    return fl.zeros(mask.shape, dtype=dtype).masked_fill(mask.bool(), -math.inf)


class MultiheadAttention(nn.MultiheadAttention):
    """Attention whose projections can be observed and quantized."""

    _FLOAT_MODULE: Any = nn.MultiheadAttention

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.linear_Q = nn.Linear(self.embed_dim, self.embed_dim, **options)
        self.linear_K = nn.Linear(self.kdim, self.embed_dim, **options)
        self.linear_V = nn.Linear(self.vdim, self.embed_dim, **options)
        self.out_proj = nn.Linear(self.embed_dim, self.embed_dim, **options)  # type: ignore[assignment]
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = QuantStub(), QuantStub()
        self.dequant_q, self.dequant_k, self.dequant_v = DeQuantStub(), DeQuantStub(), DeQuantStub()

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    def _projections(self) -> tuple[Any, Any, Any]:
        return self.linear_Q, self.linear_K, self.linear_V

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """With observers, and the parameters of a float layer."""
        if type(other) is not cls._FLOAT_MODULE or not hasattr(other, "qconfig"):
            raise AssertionError(
                f"[MultiheadAttention] expected a float layer with a qconfig, got {type(other).__name__}"
            )
        observed = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None, other.bias_k is not None,
            other.add_zero_attn, other.kdim, other.vdim, other.batch_first,
        )  # fmt: skip
        observed.bias_k, observed.bias_v, observed.qconfig = other.bias_k, other.bias_v, other.qconfig
        same = other._qkv_same_embed_dim
        weights = other.in_proj_weight.chunk(3) if same else [getattr(other, f"{n}_proj_weight") for n in "qkv"]
        biases = [None] * 3 if other.in_proj_bias is None else other.in_proj_bias.chunk(3)
        pairs = [*zip(weights, biases, strict=True), (other.out_proj.weight, other.out_proj.bias)]
        for layer, (weight, bias) in zip((*observed._projections(), observed.out_proj), pairs, strict=True):
            layer.weight = nn.Parameter(weight.detach().clone(), weight.requires_grad)
            layer.bias = None if bias is None else nn.Parameter(bias.detach().clone(), bias.requires_grad)
        observed.eval()
        from flambeau.ao.quantization.quantize import prepare

        return prepare(observed, inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        """The layer with quantized projections."""
        from flambeau.ao.quantization.quantize import convert

        converted: Any = convert(other)
        converted.__class__ = cls
        for name in ("bias_k", "bias_v"):
            bias = converted._parameters.pop(name, None)
            converted.__dict__.pop(name, None)
            if bias is not None:
                low, high = (float(end) for end in fl.aminmax(bias.detach()))
                scale, zero_point = _grid_between(low, high)
                bias = fl.quantize_per_tensor(bias.detach(), scale, zero_point, fl.quint8)
            setattr(converted, name, bias)
        for name in ("in_proj_weight", "in_proj_bias", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if converted._parameters.pop(name, None) is not None:
                setattr(converted, name, None)
        return converted

    def dequantize(self) -> nn.MultiheadAttention:
        """A float layer with the values of the quantized weights."""
        layer = nn.MultiheadAttention(
            self.embed_dim, self.num_heads, self.dropout, self.linear_Q.bias() is not None, self.bias_k is not None,
            self.add_zero_attn, self.kdim, self.vdim, self.batch_first,
        )  # fmt: skip
        layer._qkv_same_embed_dim = self._qkv_same_embed_dim
        for name in ("bias_k", "bias_v"):
            if getattr(self, name) is not None:
                setattr(layer, name, nn.Parameter(getattr(self, name).dequantize()))
        weights, biases = zip(*(part._weight_bias() for part in self._projections()), strict=True)
        weights = tuple(weight.dequantize() for weight in weights)
        if layer._qkv_same_embed_dim:
            layer.in_proj_weight = nn.Parameter(fl.cat(weights))
        else:
            for name, weight in zip("qkv", weights, strict=True):
                setattr(layer, f"{name}_proj_weight", nn.Parameter(weight))
        if layer.in_proj_bias is not None:
            layer.in_proj_bias = nn.Parameter(fl.cat(biases))
        weight, bias = self.out_proj._weight_bias()
        layer.out_proj.weight = nn.Parameter(weight.dequantize())
        layer.out_proj.bias = None if bias is None else nn.Parameter(bias)
        return layer

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        if attn_mask is not None and is_causal:
            raise AssertionError("[MultiheadAttention] expected a mask or is_causal, got both")
        if is_causal:
            raise AssertionError(
                "[MultiheadAttention] expected a mask, got is_causal, which is not written for this layer"
            )
        if self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (layer(x) for layer, x in zip(self._projections(), (query, key, value), strict=True))
        q = self.q_scaling_product.mul_scalar(q, 1.0 / math.sqrt(self.head_dim))
        if self.bias_k is not None and self.bias_v is not None:
            k, v = (self._extended(x, bias) for x, bias in ((k, self.bias_k), (v, self.bias_v)))
        q, k, v = self.dequant_q(q), self.dequant_k(k), self.dequant_v(v)
        values, weights = self._attend(q, k, v, key_padding_mask, attn_mask)
        output = self.out_proj(self.quant_attn_output(values))
        weights = self.quant_attn_output_weights(weights)
        if self.batch_first:
            output = output.transpose(0, 1)
        if not need_weights:
            return output, None
        return output, weights.mean(1) if average_attn_weights else weights

    @staticmethod
    def _extended(x: Any, bias: Any) -> Any:
        """One more position, the same for all sequences."""
        row = bias.repeat(1, x.shape[1], 1)
        if x.is_quantized:
            row = fl.quantize_per_tensor(row.dequantize(), x.q_scale(), x.q_zero_point(), x.dtype)
        return fl.cat([x, row])

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Values (l, n, e) and weights (n, heads, l, s)."""
        length, batch, _ = q.shape
        split = [x.reshape(x.shape[0], batch, self.num_heads, self.head_dim).permute(1, 2, 0, 3) for x in (q, k, v)]
        if self.add_zero_attn:
            split[1:] = [fl.cat([x, x.new_zeros(batch, self.num_heads, 1, self.head_dim)], 2) for x in split[1:]]
        products = split[0] @ split[1].transpose(-2, -1)
        more = products.shape[-1] - (k.shape[0] - (self.bias_k is not None))
        mask, padding = _as_bias(attn_mask, q.dtype), _as_bias(key_padding_mask, q.dtype)
        if mask is not None:
            mask = mask.reshape(-1, self.num_heads, *mask.shape[-2:]) if mask.dim() == 3 else mask
            products = products + nn.functional.pad(mask, (0, more))
        if padding is not None:
            products = products + nn.functional.pad(padding, (0, more)).view(batch, 1, 1, -1)
        weights = nn.functional.dropout(products.softmax(-1), self.dropout, self.training)
        return (weights @ split[2]).permute(2, 0, 1, 3).reshape(length, batch, self.embed_dim), weights


def _grid_between(low: float, high: float) -> tuple[float, int]:
    low, high = min(low, 0.0), max(high, 0.0)
    scale = max((high - low) / 255, 1.2e-7)
    return scale, min(255, max(0, round(-low / scale)))
