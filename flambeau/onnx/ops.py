"""Operators of ONNX as functions: `symbolic` stands for any operator of any domain, others compute what ONNX defines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import flambeau as fl
from flambeau import Tensor, library
from flambeau._dynamo import assume_constant_result

__all__ = ["attention", "rotary_embedding", "symbolic", "symbolic_multi_out"]

# ONNX's numbers of dtypes.
_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64", 14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip

library.define(
    "onnx_symbolic::_symbolic",
    "(Tensor?[] inputs, str op_type, str attributes, int? version, int[] shape, int onnx_dtype) -> Tensor",
)
library.define(
    "onnx_symbolic::_symbolic_multi_out",
    "(Tensor?[] inputs, str op_type, str attributes, int? version, int[] sizes, int[] ranks, int[] onnx_dtypes) -> Tensor[]",
)


def _zeros(inputs: Any, op_type: str, attributes: str, version: int | None, shape: Any, onnx_dtype: int) -> Tensor:
    """Eager mode does not know the operator: its result has the shape and dtype, and zeros."""
    return fl.zeros(list(shape), dtype=getattr(fl, _DTYPES[onnx_dtype]))


def _several_zeros(
    inputs: Any, op_type: str, attributes: str, version: int | None, sizes: Any, ranks: Any, onnx_dtypes: Any
) -> list[Tensor]:
    results, at = [], 0
    for rank, dtype in zip(ranks, onnx_dtypes):
        results.append(fl.zeros(list(sizes[at : at + rank]), dtype=getattr(fl, _DTYPES[dtype])))
        at += rank
    return results


library.impl("onnx_symbolic::_symbolic", "CompositeExplicitAutograd")(_zeros)
library.impl("onnx_symbolic::_symbolic_multi_out", "CompositeExplicitAutograd")(_several_zeros)
library.register_fake("onnx_symbolic::_symbolic")(_zeros)
library.register_fake("onnx_symbolic::_symbolic_multi_out")(_several_zeros)


@assume_constant_result
def _encoded(attrs: Mapping[str, Any] | None) -> str:
    return json.dumps({k: list(v) if isinstance(v, tuple) else v for k, v in (attrs or {}).items()})


@assume_constant_result
def _number(dtype: Any) -> int:
    if isinstance(dtype, int):
        return dtype
    return next(number for number, name in _DTYPES.items() if getattr(fl, name) == dtype)


def symbolic(
    domain_op: str,
    /,
    inputs: Sequence[Tensor | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtype: Any,
    shape: Sequence[Any],
    version: int | None = None,
    metadata_props: Mapping[str, str] | None = None,
) -> Tensor:
    """An operator of ONNX (`domain::Name`) in an exported model; zeros elsewhere."""
    return fl.ops.onnx_symbolic._symbolic(
        list(inputs), domain_op, _encoded(attrs), version, list(shape), _number(dtype)
    )


def symbolic_multi_out(
    domain_op: str,
    /,
    inputs: Sequence[Tensor | None],
    attrs: Mapping[str, Any] | None = None,
    *,
    dtypes: Sequence[Any],
    shapes: Sequence[Sequence[Any]],
    version: int | None = None,
    metadata_props: Mapping[str, str] | None = None,
) -> Sequence[Tensor]:
    """The same with several results."""
    sizes = [size for shape in shapes for size in shape]
    ranks = [len(shape) for shape in shapes]
    numbers = [_number(dtype) for dtype in dtypes]
    return fl.ops.onnx_symbolic._symbolic_multi_out(
        list(inputs), domain_op, _encoded(attrs), version, sizes, ranks, numbers
    )


def translations() -> dict[str, Any]:
    """How the operators above become nodes of a model."""

    def one(g: Any, inputs: Any, op_type: str, attributes: str, version: int | None, *rest: Any) -> Any:
        return _node(g, inputs, op_type, attributes, version, 1)

    def several(
        g: Any,
        inputs: Any,
        op_type: str,
        attributes: str,
        version: int | None,
        sizes: Any,
        ranks: Any,
        onnx_dtypes: Any,
    ) -> Any:
        return _node(g, inputs, op_type, attributes, version, len(ranks))

    return {"onnx_symbolic::_symbolic": one, "onnx_symbolic::_symbolic_multi_out": several}


def _node(g: Any, inputs: Any, op_type: str, attributes: str, version: int | None, outputs: int) -> Any:
    domain, _, name = op_type.rpartition("::")
    if domain:
        g.model.domains.setdefault(domain, 1 if version is None else version)
    results = g.op(name, *inputs, outputs=outputs, domain=domain, **json.loads(attributes))
    return list(results) if outputs > 1 else results


# ---------------------------------------------------------------------------------------------- operators of opset 23


def rotary_embedding(
    X: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    """ONNX's RotaryEmbedding: (batch, heads, length, size), or (batch, length, heads * size) with `num_heads`."""
    flat = X.dim() == 3
    if flat and num_heads == 0:
        raise ValueError("[rotary_embedding] expected num_heads for an input of three dimensions, got 0")
    x = X.reshape(X.shape[0], X.shape[1], num_heads, -1) if flat else X.transpose(1, 2)
    width = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    cos = (cos_cache if position_ids is None else cos_cache[position_ids]).unsqueeze(2)
    sin = (sin_cache if position_ids is None else sin_cache[position_ids]).unsqueeze(2)
    cos, sin = cos[..., : width // 2], sin[..., : width // 2]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, -1)
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        turned = fl.stack((real, imaginary), -1).flatten(-2)
    else:
        turned = fl.cat((real, imaginary), -1)
    result = fl.cat((turned, rest), -1) if width < x.shape[-1] else turned
    return result.reshape(X.shape) if flat else result.transpose(1, 2)


def attention(
    Q: Tensor,
    K: Tensor,
    V: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    *,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ONNX's Attention: the result, keys and values with those of the past, and the scores that `qk_matmul_output_mode` asks for."""
    flat = Q.dim() == 3
    if flat:
        if not (q_num_heads and kv_num_heads):
            raise ValueError("[attention] expected numbers of heads for inputs of three dimensions, got 0")
        Q = Q.unflatten(-1, (q_num_heads, -1)).transpose(1, 2)
        K, V = (t.unflatten(-1, (kv_num_heads, -1)).transpose(1, 2) for t in (K, V))
    key = K if past_key is None else fl.cat((past_key, K), 2)
    value = V if past_value is None else fl.cat((past_value, V), 2)
    groups = Q.shape[1] // key.shape[1]
    keys, values = (t if groups == 1 else t.repeat_interleave(groups, 1) for t in (key, value))
    factor = Q.shape[-1] ** -0.5 if scale is None else scale
    scores = (Q @ keys.transpose(-2, -1)) * factor
    stages = [scores]
    if is_causal:
        before = keys.shape[2] - Q.shape[2] if past_key is not None else 0
        allowed = fl.ones(Q.shape[2], keys.shape[2], dtype=fl.bool, device=Q.device).tril(before)
        scores = scores.masked_fill(~allowed, float("-inf"))
    if attn_mask is not None:
        if attn_mask.dtype == fl.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask
    stages.append(scores)
    if softcap > 0:
        scores = softcap * (scores / softcap).tanh()
    stages.append(scores)
    precision = scores.dtype if softmax_precision is None else getattr(fl, _DTYPES[softmax_precision])
    weights = scores.to(precision).softmax(-1).to(scores.dtype)
    stages.append(weights)
    result = weights @ values
    if flat:
        result = result.transpose(1, 2).flatten(2)
    return result, key, value, stages[qk_matmul_output_mode]
