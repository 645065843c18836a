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


def _scores(query: Any, key: Any, bias: Any, is_causal: bool, factor: float) -> Any:
    """Scores in single precision, with the bias and minus infinity for what is hidden."""
    scores = fl.matmul(query, key.transpose(-1, -2)) * factor
    if is_causal:
        allowed = fl.tril(fl.ones(scores.shape[-2:], dtype=fl.bool, device=query.device))
        scores = fl.where(allowed, scores, -math.inf)
    if bias is None:
        return scores
    return fl.where(bias, scores, -math.inf) if bias.dtype is fl.bool else scores + bias


def _repeated(x: Any, heads: int) -> Any:
    """Key heads as often as query heads share them, in single precision."""
    return x.float() if x.shape[1] == heads else x.float().repeat_interleave(heads // x.shape[1], 1)


@definition("_biased_attention")
def _biased_attention(
    query: Any, key: Any, value: Any, bias: Any, keep: Any, is_causal: bool, scale: float | None, dropout_p: float
) -> Any:
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    heads = query.shape[1]
    scores = _scores(query.float(), _repeated(key, heads), bias, is_causal, factor)
    total = fl.logsumexp(scores, [-1], keepdim=True)
    weights = fl.where(total == -math.inf, 0.0, fl.exp(scores - total))
    if keep is not None:
        weights = weights * keep * (1 / (1 - dropout_p) if dropout_p < 1 else 0.0)
    return fl.matmul(weights, _repeated(value, heads)).to(query.dtype), total.squeeze(-1)


@definition("_biased_attention_backward")
def _biased_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, keep: Any, output: Any, logsumexp: Any, is_causal: bool,
    scale: float | None, dropout_p: float, bias_gradient: bool,
) -> Any:  # fmt: skip
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    batch, heads, shared = query.shape[0], query.shape[1], key.shape[1]
    q, k, v, g = query.float(), _repeated(key, heads), _repeated(value, heads), grad.float()
    total = logsumexp.unsqueeze(-1)
    weights = fl.where(total == -math.inf, 0.0, fl.exp(_scores(q, k, bias, is_causal, factor) - total))
    of_weights, used = fl.matmul(g, v.transpose(-1, -2)), weights
    if keep is not None:
        keep_factor = keep * (1 / (1 - dropout_p) if dropout_p < 1 else 0.0)
        of_weights, used = of_weights * keep_factor, weights * keep_factor
    of_scores = weights * (of_weights - fl.sum(g * output.float(), [-1], keepdim=True))

    def of_shared(x: Any) -> Any:
        if heads == shared:
            return x
        return fl.sum(x.reshape(batch, shared, heads // shared, *x.shape[2:]), [2])

    of_bias = fl.zeros((0,), dtype=query.dtype, device=query.device)
    if bias_gradient:
        over = [d for d in range(4) if bias.shape[d] == 1 and of_scores.shape[d] != 1]
        of_bias = (fl.sum(of_scores, over, keepdim=True) if over else of_scores).to(bias.dtype)
    return (
        (fl.matmul(of_scores, k) * factor).to(query.dtype),
        (of_shared(fl.matmul(of_scores.transpose(-1, -2), q)) * factor).to(key.dtype),
        of_shared(fl.matmul(used.transpose(-1, -2), g)).to(value.dtype),
        of_bias,
    )


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
