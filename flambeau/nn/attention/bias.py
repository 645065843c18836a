"""Causal biases of attention as tensors of no memory: made dense only where they have to be."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import flambeau as fl
from flambeau import Tensor
from flambeau.nn import functional as F

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """Which corner the diagonal starts from, when there are not as many queries as keys."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask, to be passed to scaled_dot_product_attention as attn_mask."""

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> Any:
        return fl.empty(0).as_subclass(cls)

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"[CausalBias] expected a CausalVariant, got {type(variant).__name__}")
        self.variant = variant
        self.seq_len_q = seq_len_q
        self.seq_len_kv = seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            import warnings

            warnings.warn(
                "[CausalBias] expected no more queries than keys from the lower right corner, got "
                f"{seq_len_q} and {seq_len_kv}: the first queries see nothing and give NaN",
                stacklevel=2,
            )

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a dense one of bools, true where a key may be seen."""
        offset = self.seq_len_kv - self.seq_len_q if self.variant == CausalVariant.LOWER_RIGHT else 0
        shape = (self.seq_len_q, self.seq_len_kv)
        return fl.tril(fl.ones(shape, device=device, dtype=fl.bool), diagonal=offset)

    @staticmethod
    def _dispatch(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: CausalBias,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if is_causal:
            raise ValueError("[CausalBias] expected is_causal=False with a causal bias, got True")
        options: dict[str, Any] = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
        if attn_mask.variant == CausalVariant.UPPER_LEFT or attn_mask.seq_len_q == attn_mask.seq_len_kv:
            return F.scaled_dot_product_attention(query, key, value, None, is_causal=True, **options)
        mask = attn_mask._materialize(query.device)
        return F.scaled_dot_product_attention(query, key, value, mask, **options)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            return cls._dispatch(*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})

    def __repr__(self) -> str:
        return self._materialize().__repr__()


def causal_upper_left(*size: int) -> CausalBias:
    """A causal bias whose diagonal starts at the first query and key."""
    if len(size) != 2:
        raise RuntimeError(f"[causal_upper_left] expected 2 sizes, got {len(size)}")
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size: int) -> CausalBias:
    """A causal bias whose diagonal ends at the last query and key."""
    if len(size) != 2:
        raise RuntimeError(f"[causal_lower_right] expected 2 sizes, got {len(size)}")
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
