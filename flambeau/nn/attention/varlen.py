"""Attention over sequences of several lengths that lie one after the other, without padding."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import flambeau as fl
from flambeau import Tensor

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What is wanted beside the output: the logarithms of the sums of exponentials."""

    lse: bool = False


def _reach(queries: int, keys: int, window: tuple[int, int], device: Any) -> Tensor | None:
    """Which keys a query may see, the last query standing at the last key; None: all."""
    before, after = window
    if before < 0 and after < 0:
        return None
    distance = fl.arange(keys, device=device) - (fl.arange(queries, device=device)[:, None] + keys - queries)
    seen = fl.ones(queries, keys, dtype=fl.bool, device=device)
    if before >= 0:
        seen = seen & (distance >= -before)
    if after >= 0:
        seen = seen & (distance <= after)
    return seen


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Attention inside of each sequence. Tensors are (tokens, heads, size); sequences begin at `cu_seq_q` and `cu_seq_k`."""
    if block_table is not None or cu_seq_k is None:
        raise NotImplementedError("[varlen_attn] expected keys one after the other: pages of keys are not supported")
    if not enable_gqa and key.shape[1] != query.shape[1]:
        raise ValueError(f"[varlen_attn] expected {query.shape[1]} heads of keys, got {key.shape[1]}; see enable_gqa")
    starts, key_starts = cu_seq_q.tolist(), cu_seq_k.tolist()
    used = [b - a for a, b in itertools.pairwise(key_starts)] if seqused_k is None else seqused_k.tolist()
    results, sums = [], []
    for a, b, c, n in zip(starts, starts[1:], key_starts, used):
        q, k, v = (t.transpose(0, 1) for t in (query[a:b], key[c : c + n], value[c : c + n]))
        seen = _reach(b - a, n, window_size, query.device)
        result = fl.nn.functional.scaled_dot_product_attention(q, k, v, seen, scale=scale, enable_gqa=enable_gqa)
        results.append(result.transpose(0, 1))
        if return_aux is not None and return_aux.lse:
            k = k.repeat_interleave(q.shape[0] // k.shape[0], 0)
            scores = (q @ k.mT).float() * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
            sums.append((scores if seen is None else scores.masked_fill(~seen, float("-inf"))).logsumexp(-1))
    out = fl.cat(results) if results else fl.empty_like(query)
    return (out, fl.cat(sums, dim=1)) if sums else out


def varlen_attn_out(out: Tensor, *args: Any, **options: Any) -> Tensor | tuple[Tensor, Tensor]:
    """The same, written to `out`."""
    result = varlen_attn(*args, **options)
    if isinstance(result, tuple):
        return out.copy_(result[0]), result[1]
    return out.copy_(result)
