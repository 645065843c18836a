"""Attention of `nn.functional` in the language of scripts."""

import flambeau
from flambeau import Tensor

aten = flambeau.ops.aten
torch = flambeau

__all__ = ["multi_head_attention_forward"]


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask


def _one_key_more(mask: Tensor | None) -> Tensor | None:
    if mask is not None:
        mask = aten.pad(mask, [0, 1])
    return mask


def _with_padding(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, num_heads: int
) -> Tensor | None:
    if key_padding_mask is not None:
        bsz, src_len = key_padding_mask.size(0), key_padding_mask.size(1)
        padding = _additive(key_padding_mask, q).view(bsz, 1, 1, src_len)
        padding = padding.expand(-1, num_heads, -1, -1).reshape(bsz * num_heads, 1, src_len)
        if attn_mask is None:
            attn_mask = padding
        else:
            attn_mask = attn_mask + padding
    return attn_mask


def _projected(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    use_separate_proj_weight: bool,
    q_proj_weight: Tensor | None,
    k_proj_weight: Tensor | None,
    v_proj_weight: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    b_q: Tensor | None = None
    b_k: Tensor | None = None
    b_v: Tensor | None = None
    if in_proj_bias is not None:
        b_q, b_k, b_v = in_proj_bias.chunk(3)
    if use_separate_proj_weight:
        assert q_proj_weight is not None and k_proj_weight is not None and v_proj_weight is not None
        w_q, w_k, w_v = q_proj_weight, k_proj_weight, v_proj_weight
    else:
        assert in_proj_weight is not None
        w_q, w_k, w_v = in_proj_weight.chunk(3)
    return aten.linear(query, w_q, b_q), aten.linear(key, w_k, b_k), aten.linear(value, w_v, b_v)


def _explicit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    bsz: int,
    num_heads: int,
) -> tuple[Tensor, Tensor]:
    tgt_len, src_len, head_dim = q.size(1), k.size(1), q.size(2)
    q_scaled = q * (1.0 / float(head_dim)) ** 0.5
    if attn_mask is not None:
        weights = torch.baddbmm(attn_mask, q_scaled, k.transpose(-2, -1))
    else:
        weights = torch.bmm(q_scaled, k.transpose(-2, -1))
    weights = weights.softmax(-1)
    if dropout_p > 0.0:
        weights = aten.dropout(weights, dropout_p, True)
    output = torch.bmm(weights, v).transpose(0, 1).contiguous().view(tgt_len * bsz, num_heads * head_dim)
    output = aten.linear(output, out_proj_weight, out_proj_bias)
    return output.view(tgt_len, bsz, output.size(1)), weights.view(bsz, num_heads, tgt_len, src_len)


def _fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    bsz: int,
    num_heads: int,
) -> Tensor:
    tgt_len, src_len, head_dim = q.size(1), k.size(1), q.size(2)
    if attn_mask is not None:
        if attn_mask.size(0) == 1 and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(0)
        else:
            attn_mask = attn_mask.view(bsz, num_heads, -1, src_len)
    q = q.view(bsz, num_heads, tgt_len, head_dim)
    k = k.view(bsz, num_heads, src_len, head_dim)
    v = v.view(bsz, num_heads, src_len, head_dim)
    output = aten.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, is_causal and attn_mask is None)
    output = output.permute(2, 0, 1, 3).contiguous().view(bsz * tgt_len, num_heads * head_dim)
    output = aten.linear(output, out_proj_weight, out_proj_bias)
    return output.view(tgt_len, bsz, output.size(1))


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    is_batched = query.dim() == 3
    if not is_batched:
        query = query.unsqueeze(1)
        key = key.unsqueeze(1)
        value = value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    tgt_len, bsz, embed_dim = query.size(0), query.size(1), query.size(2)
    assert embed_dim == embed_dim_to_check, (
        f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed_dim}"
    )
    head_dim = embed_dim // num_heads
    q, k, v = _projected(
        query,
        key,
        value,
        in_proj_weight,
        in_proj_bias,
        use_separate_proj_weight,
        q_proj_weight,
        k_proj_weight,
        v_proj_weight,
    )
    if attn_mask is not None:
        attn_mask = _additive(attn_mask, q)
        if attn_mask.dim() == 2:
            attn_mask = attn_mask.unsqueeze(0)
    if bias_k is not None and bias_v is not None:
        k = torch.cat([k, bias_k.repeat(1, bsz, 1)])
        v = torch.cat([v, bias_v.repeat(1, bsz, 1)])
        attn_mask, key_padding_mask = _one_key_more(attn_mask), _one_key_more(key_padding_mask)
    q = q.view(tgt_len, bsz * num_heads, head_dim).transpose(0, 1)
    k = static_k if static_k is not None else k.view(k.size(0), bsz * num_heads, head_dim).transpose(0, 1)
    v = static_v if static_v is not None else v.view(v.size(0), bsz * num_heads, head_dim).transpose(0, 1)
    if add_zero_attn:
        k = torch.cat([k, torch.zeros([bsz * num_heads, 1, head_dim], dtype=k.dtype, device=k.device)], dim=1)
        v = torch.cat([v, torch.zeros([bsz * num_heads, 1, head_dim], dtype=v.dtype, device=v.device)], dim=1)
        attn_mask, key_padding_mask = _one_key_more(attn_mask), _one_key_more(key_padding_mask)
    attn_mask = _with_padding(attn_mask, key_padding_mask, q, num_heads)
    if not training:
        dropout_p = 0.0
    if need_weights:
        output, weights = _explicit(q, k, v, attn_mask, dropout_p, out_proj_weight, out_proj_bias, bsz, num_heads)
        if average_attn_weights:
            weights = weights.mean(dim=1)
        if not is_batched:
            output = output.squeeze(1)
            weights = weights.squeeze(0)
        return output, weights
    output = _fused(q, k, v, attn_mask, dropout_p, is_causal, out_proj_weight, out_proj_bias, bsz, num_heads)
    if not is_batched:
        output = output.squeeze(1)
    return output, None
