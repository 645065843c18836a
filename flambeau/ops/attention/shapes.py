"""Shape rules of attention."""

from __future__ import annotations

from flambeau.ops.geometry import Geometry, Ints, broadcast, equal_sizes, fits
from flambeau.ops.rules import shape


@shape("_flash_attention")
def flash_attention(query: Geometry, key: Geometry, value: Geometry, attn_mask: Geometry | None) -> list[Ints]:
    if attn_mask is not None:
        fits(attn_mask.sizes, (*query.sizes[:-1], key.sizes[-2]), "attention")
    equal_sizes(query.sizes[-1], key.sizes[-1], "attention")
    equal_sizes(key.sizes[-2], value.sizes[-2], "attention")
    equal_sizes(query.sizes[0], key.sizes[0], "attention")
    return [(*query.sizes[:-1], value.sizes[-1]), query.sizes[:-1]]


@shape("_flash_attention_backward")
def flash_attention_backward(query: Geometry, key: Geometry, value: Geometry) -> list[Ints]:
    return [query.sizes, key.sizes, value.sizes]


@shape("_biased_attention")
def biased_attention(query: Geometry, key: Geometry, value: Geometry, bias: Geometry | None) -> list[Ints]:
    return flash_attention(query, key, value, bias)


@shape("_biased_attention_backward")
def biased_attention_backward(
    query: Geometry, key: Geometry, value: Geometry, bias: Geometry | None, bias_gradient: bool
) -> list[Ints]:
    return [query.sizes, key.sizes, value.sizes, bias.sizes if bias is not None and bias_gradient else (0,)]


@shape("scaled_dot_product_attention")
def attention(query: Geometry, key: Geometry, value: Geometry, enable_gqa: bool) -> Ints:
    equal_sizes(query.sizes[-1], key.sizes[-1], "attention width")
    equal_sizes(key.sizes[-2], value.sizes[-2], "attention length")
    if enable_gqa:
        return (*query.sizes[:-1], value.sizes[-1])
    lead = broadcast(query.sizes[:-2], key.sizes[:-2], value.sizes[:-2])
    return (*lead, query.sizes[-2], value.sizes[-1])
