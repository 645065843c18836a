"""Scaled dot-product attention and the multi-head form built on it.

`_flash_attention` is the blocked native kernel; it returns the logsumexp of each query's scores for the backward pass.
`_biased_attention` is the same with dropout and with a bias that has a gradient, where compiled code has a kernel for that.
What neither covers (double precision, broadcast batches) runs as the plain composition of products.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, tag, vjp
from flambeau.ops.recording import device_type
from flambeau.ops.retrace import retrace

native(
    "_flash_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, bool is_causal, float? scale) "
    "-> (Tensor output, Tensor logsumexp)"
)
native(
    "_flash_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor output, "
    "Tensor logsumexp, bool is_causal, float? scale) -> (Tensor, Tensor, Tensor)"
)


native(
    "_biased_attention(Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? keep, bool is_causal, float? scale, "
    "float dropout_p) -> (Tensor output, Tensor logsumexp)"
)
native(
    "_biased_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? keep, Tensor output, "
    "Tensor logsumexp, bool is_causal, float? scale, float dropout_p, bool bias_gradient) -> (Tensor, Tensor, Tensor, Tensor)"
)


@vjp("_biased_attention")
def biased_attention_vjp(
    g0: fl.Tensor,
    query: fl.Tensor,
    key: fl.Tensor,
    value: fl.Tensor,
    bias: fl.Tensor | None,
    keep: fl.Tensor | None,
    is_causal: bool,
    scale: Any,
    dropout_p: float,
    output: fl.Tensor,
    logsumexp: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    if fl.is_grad_enabled():
        grouped = query.shape[1] != key.shape[1]

        def compose(q: Any, k: Any, v: Any, b: fl.Tensor) -> fl.Tensor:
            return _attention_math(q, k, v, b, dropout_p, is_causal, scale, grouped, keep)

        operands = (query, key, value, *(() if bias is None else (bias,)))
        wanted = needs[: len(operands)]
        return retrace(lambda q, k, v, b=None: compose(q, k, v, b), operands, wanted, g0)
    *grads, of_bias = fl._ops._biased_attention_backward(
        g0, query, key, value, bias, keep, output, logsumexp, is_causal, scale, dropout_p, needs[3]
    )
    return tuple(x if needed else None for x, needed in zip((*grads, of_bias), needs))


@vjp("_flash_attention")
def flash_attention_vjp(
    g0: fl.Tensor,
    query: fl.Tensor,
    key: fl.Tensor,
    value: fl.Tensor,
    attn_mask: fl.Tensor | None,
    is_causal: bool,
    scale: Any,
    output: fl.Tensor,
    logsumexp: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    if fl.is_grad_enabled():
        # A backward that is recorded itself goes through the composition of products.
        grouped = query.shape[1] != key.shape[1]

        def compose(q: Any, k: Any, v: Any) -> fl.Tensor:
            return _attention_math(q, k, v, attn_mask, 0.0, is_causal, scale, grouped)

        return retrace(compose, (query, key, value), needs[:3], g0)
    grads = fl._ops._flash_attention_backward(g0, query, key, value, attn_mask, output, logsumexp, is_causal, scale)
    return tuple(x if needed else None for x, needed in zip(grads, needs))


OP = "scaled_dot_product_attention"


def _check(query: fl.Tensor, key: fl.Tensor, value: fl.Tensor, mask: fl.Tensor | None, is_causal: bool) -> None:
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(f"[{OP}] expected one dtype, got {query.dtype}, {key.dtype} and {value.dtype}")
    if not query.device == key.device == value.device:
        raise RuntimeError(f"[{OP}] expected one device, got {query.device}, {key.device} and {value.device}")
    if min(query.dim(), key.dim(), value.dim()) < 2:
        shapes = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        raise RuntimeError(f"[{OP}] expected operands of at least 2 dimensions, got {shapes}")
    if mask is not None:
        if mask.dtype not in (fl.bool, query.dtype, fl.float32):
            raise RuntimeError(f"[{OP}] expected a mask of dtype bool or {query.dtype}, got {mask.dtype}")
        if is_causal:
            raise RuntimeError(f"[{OP}] expected either attn_mask or is_causal, got both")


def _is_on_device(
    query: fl.Tensor, key: fl.Tensor, value: fl.Tensor, mask: fl.Tensor | None, scale: float | None
) -> bool:
    """Whether a CUDA kernel takes these operands: the one over blocks, or the one that holds a row of scores."""
    if query.device.type != "cuda":
        return False
    if mask is None and query.shape[1] == key.shape[1] and key.shape[2] <= 16384:
        return True
    return (
        query.dtype in (fl.bfloat16, fl.float16)
        and query.shape[3] == value.shape[3]
        and 0 < query.shape[3] <= 128
        and query.numel() > 0
        and max(query.shape[2], key.shape[2]) <= 1 << 21
        and (scale is None or scale > 0)
    )


def _is_biased(query: fl.Tensor, key: fl.Tensor, value: fl.Tensor, mask: fl.Tensor | None, gqa: bool) -> bool:
    """Whether attention with dropout, or with a bias whose gradient is wanted, is one operator: compiled code for CUDA has
    kernels for it, which keep no scores."""
    return (
        device_type(query) == "cuda"
        and query.dim() == key.dim() == value.dim() == 4
        and query.dtype in (fl.float32, fl.bfloat16, fl.float16)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1:3] == value.shape[1:3]
        and query.shape[3] == key.shape[3]
        and (query.shape[1] == key.shape[1] or (gqa and key.shape[1] > 0 and query.shape[1] % key.shape[1] == 0))
        and query.numel() > 0
        and key.numel() > 0
        and (mask is None or (mask.dim() <= 4 and mask.dtype in (fl.bool, query.dtype, fl.float32)))
    )


def _biased(
    query: fl.Tensor,
    key: fl.Tensor,
    value: fl.Tensor,
    mask: fl.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> fl.Tensor:
    """Attention with dropout or a bias that has a gradient; the weights that are kept are drawn before."""
    keep = None
    sizes = (*query.shape[:3], key.shape[2])
    if dropout_p > 0.0 and query.device.type == "cuda":
        keep = fl.empty(sizes, dtype=fl.bool, device=query.device).bernoulli_(1 - dropout_p)
    elif dropout_p > 0.0:  # recorded: the same numbers, of an operator that becomes loops
        weights = query.new_empty(()).expand(*sizes)  # of which nothing is read
        keep = fl.native_dropout(weights, dropout_p, True)[1]
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))
    return fl._ops._biased_attention(query, key, value, mask, keep, is_causal, scale, dropout_p)[0]


def _is_blocked(
    query: fl.Tensor, key: fl.Tensor, value: fl.Tensor, mask: fl.Tensor | None, scale: float | None, gqa: bool
) -> bool:
    """Whether the blocked kernel takes these operands."""
    return (
        query.dim() == key.dim() == value.dim() == 4
        and query.dtype in (fl.float32, fl.bfloat16, fl.float16)
        and (query.device.type in ("cpu", "meta") or _is_on_device(query, key, value, mask, scale))
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1] == value.shape[1]
        and key.shape[2] == value.shape[2]
        and query.shape[3] == key.shape[3]
        and (query.shape[1] == key.shape[1] or (gqa and key.shape[1] > 0 and query.shape[1] % key.shape[1] == 0))
        and key.shape[2] > 0
        and (mask is None or (mask.dim() <= 4 and not mask.requires_grad))
    )


@composite(module="nn.functional")
def scaled_dot_product_attention(
    query: fl.Tensor,
    key: fl.Tensor,
    value: fl.Tensor,
    attn_mask: fl.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> fl.Tensor:
    _check(query, key, value, attn_mask, is_causal)
    if dropout_p == 0.0 and _is_blocked(query, key, value, attn_mask, scale, enable_gqa):
        return fl._ops._flash_attention(query, key, value, attn_mask, is_causal, scale)[0]
    if _is_biased(query, key, value, attn_mask, enable_gqa):
        return _biased(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        raise RuntimeError(
            f"[{OP}] expected query (..., length, e), key (..., keys, e) and value (..., keys, v), got {shapes}"
        )
    return _attention_math(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _attention_math(
    query: fl.Tensor,
    key: fl.Tensor,
    value: fl.Tensor,
    mask: fl.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    gqa: bool,
    keep: fl.Tensor | None = None,
) -> fl.Tensor:
    """Attention as products and a softmax, over any batch dimensions that broadcast. `keep` says which weights dropout keeps,
    if they have been drawn."""
    if query.dtype in (fl.bfloat16, fl.float16):
        # Scores and weights are kept in float, as the blocked kernel keeps them.
        wide, wide_key, wide_value = (x.to(fl.float32) for x in (query, key, value))
        return _attention_math(wide, wide_key, wide_value, mask, dropout_p, is_causal, scale, gqa, keep).to(query.dtype)
    length, keys, depth = query.shape[-2], key.shape[-2], query.shape[-1]
    if gqa and query.dim() > 2:
        heads = query.shape[-3]
        if 0 in (key.shape[-3], value.shape[-3]) or heads % key.shape[-3] or heads % value.shape[-3]:
            raise RuntimeError(f"[{OP}] expected query heads divisible by key heads, got {heads} and {key.shape[-3]}")
        key = key.repeat_interleave(heads // key.shape[-3], -3)
        value = value.repeat_interleave(heads // value.shape[-3], -3)
    if scale is None:
        scale = 1.0 / math.sqrt(depth) if depth else 1.0
    # Splitting the factor keeps reduced precision away from overflow.
    root = math.sqrt(abs(scale))
    scores = fl.matmul(query * math.copysign(root, scale), key.transpose(-2, -1) * root)
    hidden = None
    if is_causal:
        hidden = fl.ones(length, keys, dtype=fl.bool, device=query.device).tril().logical_not()
    elif mask is not None and mask.dtype == fl.bool:
        hidden = mask.logical_not()
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = fl.softmax(scores, -1)
    if mask is not None or is_causal:
        # A query that sees no key gets zero instead of the 0 / 0 of its softmax.
        blind = (scores == float("-inf")).all(-1, keepdim=True)
        weights = weights.masked_fill(blind, 0.0)
    if keep is not None:
        weights = weights * keep * (1 / (1 - dropout_p) if dropout_p < 1 else 0.0)
    elif dropout_p > 0.0:
        weights = fl.nn.functional.dropout(weights, dropout_p, True)
    return fl.matmul(weights, value)


# ---------------------------------------------------------------- multi-head attention

_HEADS = "multi_head_attention_forward"


def _project(inputs: tuple[fl.Tensor, ...], embed: int, weight: Any, separate: Any, bias: Any) -> list[fl.Tensor]:
    """Query, key and value after their linear maps, packed in one weight or given separately."""
    linear = fl.nn.functional.linear
    biases = (None, None, None) if bias is None else [bias[i * embed : (i + 1) * embed] for i in range(3)]
    if separate is not None:
        return [linear(x, w, b) for x, w, b in zip(inputs, separate, biases)]
    if inputs[0] is inputs[1] and inputs[1] is inputs[2]:
        packed = linear(inputs[0], weight, bias)
        return [packed[..., i * embed : (i + 1) * embed] for i in range(3)]
    weights = [weight[i * embed : (i + 1) * embed] for i in range(3)]
    return [linear(x, w, b) for x, w, b in zip(inputs, weights, biases)]


def _float_mask(name: str, mask: fl.Tensor | None, dtype: Any) -> fl.Tensor | None:
    """A mask whose True hides, as numbers to add to the scores."""
    if mask is None:
        return None
    if mask.dtype == fl.bool:
        return fl.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))
    if not mask.is_floating_point():
        raise RuntimeError(f"[{_HEADS}] expected {name} of bool or floating dtype, got {mask.dtype}")
    return mask


def _check_ranks(query: fl.Tensor, key: fl.Tensor, value: fl.Tensor) -> None:
    if query.dim() not in (2, 3):
        raise AssertionError(f"[{_HEADS}] expected a query of 2 or 3 dimensions, got shape {tuple(query.shape)}")
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"[{_HEADS}] expected key and value of {query.dim()} dimensions, got {key.dim()} and {value.dim()}"
        )


def _check_sizes(query: fl.Tensor, key: fl.Tensor, value: fl.Tensor, embed: int, heads: int, separate: bool) -> None:
    """Of tensors (length, batch, embedding); with separate projections key and value may have other embeddings."""
    if query.shape[2] != embed:
        raise AssertionError(f"[{_HEADS}] expected a query of embed_dim {embed}, got {query.shape[2]}")
    if embed % heads:
        raise AssertionError(f"[{_HEADS}] expected an embedding divisible by {heads} heads, got {embed}")
    if key.shape[1] != query.shape[1]:
        shapes = f"{tuple(query.shape)} and {tuple(key.shape)}"
        raise RuntimeError(f"[{_HEADS}] expected query and key (length, batch, embed_dim) of one batch, got {shapes}")
    alike = key.shape[:2] == value.shape[:2] if separate else key.shape == value.shape
    if not alike:
        what = "length" if separate else "shape"
        raise AssertionError(
            f"[{_HEADS}] expected key and value of one {what}, got {tuple(key.shape)} and {tuple(value.shape)}"
        )


def _checked_mask(mask: fl.Tensor, rows: int, length: int, keys: int) -> fl.Tensor:
    """A mask for all heads, or one for each head of each sequence, as one of three dimensions."""
    if mask.dim() not in (2, 3):
        raise RuntimeError(f"[{_HEADS}] expected attn_mask of 2 or 3 dimensions, got {mask.dim()}")
    wanted = (length, keys) if mask.dim() == 2 else (rows, length, keys)
    if tuple(mask.shape) != wanted:
        raise RuntimeError(f"[{_HEADS}] expected attn_mask of shape {wanted}, got {tuple(mask.shape)}")
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def _with_biases(k: fl.Tensor, v: fl.Tensor, bias_k: Any, bias_v: Any, static: bool) -> tuple[fl.Tensor, fl.Tensor]:
    """Keys and values with one more that is the same for all sequences."""
    if bias_k is None or bias_v is None:
        raise AssertionError(f"[{_HEADS}] expected bias_k and bias_v together, got one of them")
    if static:
        raise AssertionError(f"[{_HEADS}] expected no static key or value together with bias_k and bias_v")
    return fl.cat([k, bias_k.expand(1, *k.shape[1:])]), fl.cat([v, bias_v.expand(1, *v.shape[1:])])


def _joint_mask(
    mask: fl.Tensor | None, padding: fl.Tensor | None, batch: int, heads: int, keys: int, added_keys: int
) -> fl.Tensor | None:
    """The mask of scores and that of keys as one to add to the scores. Keys that were added are not hidden."""
    if added_keys:
        pad = fl.nn.functional.pad
        mask = None if mask is None else pad(mask, (0, added_keys))
        padding = None if padding is None else pad(padding, (0, added_keys))
    if padding is None:
        return mask
    if tuple(padding.shape) != (batch, keys):
        raise AssertionError(
            f"[{_HEADS}] expected key_padding_mask of shape ({batch}, {keys}), got {tuple(padding.shape)}"
        )
    padding = padding.reshape(batch, 1, 1, keys).expand(batch, heads, 1, keys).reshape(batch * heads, 1, keys)
    return padding if mask is None else mask + padding


def _mixed_and_weights(
    q: fl.Tensor, k: fl.Tensor, v: fl.Tensor, mask: fl.Tensor | None, dropout_p: float
) -> tuple[fl.Tensor, fl.Tensor]:
    """Attention of (head, length, depth) as (length, head, depth), and its weights before dropout."""
    q, turned = q * math.sqrt(1.0 / q.shape[-1]), k.transpose(-2, -1)
    weights = fl.softmax(fl.bmm(q, turned) if mask is None else fl.baddbmm(mask, q, turned), -1)
    dropped = fl.nn.functional.dropout(weights, dropout_p, True) if dropout_p > 0.0 else weights
    return fl.matmul(dropped, v).transpose(0, 1), weights


@composite()
def nn_multi_head_attention_forward(
    query: fl.Tensor,
    key: fl.Tensor,
    value: fl.Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: fl.Tensor | None,
    in_proj_bias: fl.Tensor | None,
    bias_k: fl.Tensor | None,
    bias_v: fl.Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: fl.Tensor,
    out_proj_bias: fl.Tensor | None,
    training: bool = True,
    key_padding_mask: fl.Tensor | None = None,
    need_weights: bool = True,
    attn_mask: fl.Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: fl.Tensor | None = None,
    k_proj_weight: fl.Tensor | None = None,
    v_proj_weight: fl.Tensor | None = None,
    static_k: fl.Tensor | None = None,
    static_v: fl.Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[fl.Tensor, fl.Tensor]:
    _check_ranks(query, key, value)
    if is_causal and attn_mask is None:
        raise RuntimeError(f"[{_HEADS}] expected attn_mask with is_causal, which is only a hint, got None")
    key_padding_mask = _float_mask("key_padding_mask", key_padding_mask, query.dtype)
    attn_mask = _float_mask("attn_mask", attn_mask, query.dtype)
    hint = is_causal and key_padding_mask is None and not need_weights and bias_k is None and not add_zero_attn

    batched = query.dim() == 3
    if not batched:
        # The same object stays the same, so that the packed projection is recognised.
        lifted: dict[int, fl.Tensor] = {id(x): x.unsqueeze(1) for x in (query, key, value)}
        query, key, value = (lifted[id(x)] for x in (query, key, value))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    length, batch, embed = query.shape
    depth, rows = embed // num_heads, batch * num_heads
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _project((query, key, value), embed, in_proj_weight, separate, in_proj_bias)
    if attn_mask is not None:
        attn_mask = _checked_mask(attn_mask, rows, length, key.shape[0])

    if bias_k is not None or bias_v is not None:
        k, v = _with_biases(k, v, bias_k, bias_v, static_k is not None or static_v is not None)
    q = q.reshape(length, rows, depth).transpose(0, 1)
    k = k.reshape(k.shape[0], rows, depth).transpose(0, 1) if static_k is None else static_k
    v = v.reshape(v.shape[0], rows, depth).transpose(0, 1) if static_v is None else static_v
    if add_zero_attn:
        zero = fl.zeros((rows, 1, depth), dtype=k.dtype, device=k.device)
        k = fl.cat([k, zero], 1)
        v = fl.cat([v, zero], 1)
    keys = k.shape[1]
    added_keys = int(bias_k is not None) + int(add_zero_attn)
    attn_mask = _joint_mask(attn_mask, key_padding_mask, batch, num_heads, keys, added_keys)
    dropout_p = dropout_p if training else 0.0
    weights = None
    if need_weights:
        mixed, weights = _mixed_and_weights(q, k, v, attn_mask, dropout_p)
        weights = weights.reshape(batch, num_heads, length, keys)
        weights = weights.mean(1) if average_attn_weights else weights
        weights = weights if batched else weights.squeeze(0)
    else:
        if attn_mask is not None:
            shared = attn_mask.shape[0] == 1
            attn_mask = attn_mask.unsqueeze(0) if shared else attn_mask.reshape(batch, num_heads, -1, keys)
        q, k, v = (x.reshape(batch, num_heads, n, depth) for x, n in ((q, length), (k, keys), (v, keys)))
        mixed = fl.nn.functional.scaled_dot_product_attention(q, k, v, None if hint else attn_mask, dropout_p, hint)
        mixed = mixed.permute(2, 0, 1, 3)
    output = fl.nn.functional.linear(mixed.reshape(length * batch, embed), out_proj_weight, out_proj_bias)
    output = output.reshape(length, batch, out_proj_weight.shape[0])
    return (output if batched else output.squeeze(1)), weights  # type: ignore[return-value]


# ---------------------------------------------------------------- what passes know of these operators

tag(
    "attention",
    "_biased_attention _biased_attention_backward _flash_attention _flash_attention_backward "
    "scaled_dot_product_attention",
)
tag("recomputable", "_flash_attention")
tag("attention_backward", "_flash_attention_backward _biased_attention_backward")
autocast("lower", "scaled_dot_product_attention")
