"""Samples of attention."""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.ops.samples import Call, Constant, Make, call, samples


@samples("scaled_dot_product_attention")
def attention(make: Make) -> Iterator[Call]:
    yield call(make(2, 3, 2), make(2, 3, 2), make(2, 3, 2), is_causal=True)
    yield call(make(1, 2, 3, 2), make(1, 2, 4, 2), make(1, 2, 4, 2), make(3, 4), scale=0.7)


@samples("_flash_attention")
def flash_attention(make: Make) -> Iterator[Call]:
    q, k, v = (make.real(1, 2, 3, 2).float() for _ in range(3))
    yield call(Constant(q), Constant(k), Constant(v), None, True, None)


@samples("_flash_attention_backward")
def flash_attention_backward(make: Make) -> Iterator[Call]:
    import flambeau as fl

    q, k, v, g = (make.real(1, 2, 3, 2).float() for _ in range(4))
    out, sums = fl._ops._flash_attention(q, k, v, None, True, None)
    g, q, k, v, out, sums = map(Constant, (g, q, k, v, out, sums))
    yield call(g, q, k, v, None, out, sums, True, None)


@samples("_biased_attention")
def biased_attention(make: Make) -> Iterator[Call]:
    import flambeau as fl

    q, k, v = (make.real(1, 2, 3, 2).float() for _ in range(3))
    bias, keep = make.real(1, 1, 3, 3).float(), fl.ones(1, 2, 3, 3).tril().bool()
    yield call(*map(Constant, (q, k, v, bias, keep)), False, None, 0.25)
    yield call(Constant(q), Constant(k), Constant(v), None, None, True, 0.7, 0.0)


@samples("_biased_attention_backward")
def biased_attention_backward(make: Make) -> Iterator[Call]:
    import flambeau as fl

    q, k, v, g = (make.real(1, 2, 3, 2).float() for _ in range(4))
    bias, keep = make.real(1, 1, 3, 3).float(), fl.ones(1, 2, 3, 3).tril().bool()
    out, sums = fl._ops._biased_attention(q, k, v, bias, keep, False, None, 0.25)
    g, q, k, v, bias, keep, out, sums = map(Constant, (g, q, k, v, bias, keep, out, sums))  # type: ignore[assignment]
    yield call(g, q, k, v, bias, keep, out, sums, False, None, 0.25, True)


@samples("nn_multi_head_attention_forward")
def multi_head_attention(make: Make) -> Iterator[Call]:
    query, key, value = make(3, 2, 4), make(2, 2, 4), make(2, 2, 4)
    weights = make(12, 4), make(12), None, None, False, 0.0, make(4, 4), make(4)
    yield call(query, key, value, 4, 2, *weights)
