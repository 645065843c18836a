"""Definitions of attention in terms of other operators."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition


@definition("_flash_attention")
def _flash_attention(query: Any, key: Any, value: Any, attn_mask: Any, is_causal: bool, scale: float | None) -> Any:
    scores = fl.matmul(query, key.transpose(-1, -2)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        allowed = fl.tril(fl.ones(scores.shape[-2:], dtype=fl.bool, device=query.device))
        scores = fl.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        scores = fl.where(attn_mask, scores, -math.inf) if attn_mask.dtype is fl.bool else scores + attn_mask
    total = fl.logsumexp(scores, [-1], keepdim=True)
    return fl.matmul(fl.exp(scores - total), value), total.squeeze(-1)


@definition("_flash_attention_backward")
def _flash_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, attn_mask: Any, output: Any, logsumexp: Any, is_causal: bool,
    scale: float | None,
) -> Any:  # fmt: skip
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = fl.matmul(query, key.transpose(-1, -2)) * factor
    if is_causal:
        allowed = fl.tril(fl.ones(scores.shape[-2:], dtype=fl.bool, device=query.device))
        scores = fl.where(allowed, scores, -math.inf)
    if attn_mask is not None:
        scores = fl.where(attn_mask, scores, -math.inf) if attn_mask.dtype is fl.bool else scores + attn_mask
    weights = fl.exp(scores - logsumexp.unsqueeze(-1)).to(query.dtype)
    by_value = fl.matmul(weights.transpose(-1, -2), grad)
    of_weights = fl.matmul(grad, value.transpose(-1, -2))
    of_scores = weights * (of_weights - fl.sum(of_weights * weights, [-1], keepdim=True)) * factor
    return fl.matmul(of_scores, key), fl.matmul(of_scores.transpose(-1, -2), query), by_value
