"""Attention with quantized projections."""

from __future__ import annotations

from typing import Any

from flambeau.ao.nn import quantizable

__all__ = ["MultiheadAttention"]


class MultiheadAttention(quantizable.MultiheadAttention):
    """Attention on quantized tensors; made from an observed layer."""

    _FLOAT_MODULE: Any = quantizable.MultiheadAttention

    def _get_name(self) -> str:
        return "QuantizedMultiheadAttention"

    @classmethod
    def from_float(cls, other: Any) -> Any:
        raise NotImplementedError(
            "[quantized.MultiheadAttention] expected a layer of nn.quantizable that was observed, got a float one: "
            "prepare the model first"
        )
