"""Attention against its definition, with every kind of mask, and its gradients."""

import math

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F


def reference(q, k, v, mask=None, causal=False, scale=None):
    scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def operands(shape=(2, 3, 70, 24), keys=150, value_depth=40, dtype=np.float32):
    rng = np.random.default_rng(0)
    b, h, _length, depth = shape
    sizes = (shape, (b, h, keys, depth), (b, h, keys, value_depth))
    return [rng.standard_normal(s).astype(dtype) for s in sizes]


def tensors(*arrays):
    return [fl.as_tensor(a) for a in arrays]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("value_depth", [5, 64, 130])
def test_blocks_match_definition(causal, value_depth):
    q, k, v = operands(value_depth=value_depth)
    got = F.scaled_dot_product_attention(*tensors(q, k, v), is_causal=causal)
    np.testing.assert_allclose(got.cpu().numpy(), reference(q, k, v, causal=causal), atol=2e-5)


@pytest.mark.parametrize("shape", [(70, 150), (2, 1, 70, 150), (1, 3, 1, 150), (1, 1)])
@pytest.mark.parametrize("boolean", [False, True])
def test_masks_broadcast(shape, boolean):
    q, k, v = operands()
    mask = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    if boolean:
        mask = mask > -1 if mask.size > 1 else np.ones(shape, bool)
    got = F.scaled_dot_product_attention(*tensors(q, k, v), attn_mask=fl.as_tensor(mask))
    np.testing.assert_allclose(got.cpu().numpy(), reference(q, k, v, mask), atol=2e-5)


@pytest.mark.parametrize("layout", ["heads", "rows"])
@pytest.mark.parametrize("value_depth", [16, 37, 128])
def test_few_queries_read_keys_where_they_lie(value_depth, layout):
    q, k, v = operands((2, 3, 2, 24), 600, value_depth)
    mask = np.random.default_rng(3).random((2, 600)) > 0.3
    got = tensors(q, k, v)
    if layout == "rows":
        got = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in got]
    got = F.scaled_dot_product_attention(*got, attn_mask=fl.as_tensor(mask))
    np.testing.assert_allclose(got.cpu().numpy(), reference(q, k, v, mask), atol=2e-5)


def test_query_that_sees_nothing_gets_zero():
    q, k, v = operands((1, 1, 3, 8), 4, 8)
    mask = np.ones((3, 4), bool)
    mask[1] = False
    got = F.scaled_dot_product_attention(*tensors(q, k, v), attn_mask=fl.as_tensor(mask)).cpu().numpy()
    assert (got[0, 0, 1] == 0).all() and np.isfinite(got).all()


def test_shared_key_heads():
    q, k, v = operands((1, 4, 9, 8), 11, 8)
    k, v = k[:, :2], v[:, :2]
    got = F.scaled_dot_product_attention(*tensors(q, k, v), enable_gqa=True, scale=0.3)
    np.testing.assert_allclose(got.cpu().numpy(), reference(q, k.repeat(2, 1), v.repeat(2, 1), scale=0.3), atol=2e-5)


def test_heads_from_a_projection_need_no_copy():
    joined = np.random.default_rng(2).standard_normal((2, 10, 4, 16)).astype(np.float32)
    x = fl.as_tensor(joined).transpose(1, 2)
    heads = joined.swapaxes(1, 2)
    np.testing.assert_allclose(
        F.scaled_dot_product_attention(x, x, x).cpu().numpy(), reference(heads, heads, heads), atol=2e-5
    )


@pytest.mark.parametrize("dtype,tolerance", [("bfloat16", 2e-2), ("float16", 3e-3)])
def test_reduced_precision(dtype, tolerance):
    q, k, v = operands()
    got = F.scaled_dot_product_attention(*(t.to(getattr(fl, dtype)) for t in tensors(q, k, v)))
    assert got.dtype == getattr(fl, dtype)
    np.testing.assert_allclose(got.to(fl.float32).cpu().numpy(), reference(q, k, v), atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_match_finite_differences(causal):
    q, k, v = operands((1, 2, 7, 4), 9, 3)
    g = np.random.default_rng(3).standard_normal((1, 2, 7, 3)).astype(np.float32)
    out, logsumexp = fl._ops._flash_attention(*tensors(q, k, v), None, causal, None)
    grads = fl._ops._flash_attention_backward(fl.as_tensor(g), *tensors(q, k, v), None, out, logsumexp, causal, None)
    wide = [a.astype(np.float64) for a in (q, k, v)]
    step = 1e-5
    for which, grad in enumerate(grads):
        grad = grad.cpu().numpy()
        for place in [(0, 0, 0, 0), (0, 1, 3, 2), (0, 1, 6, 1)]:
            up, down = [a.copy() for a in wide], [a.copy() for a in wide]
            up[which][place] += step
            down[which][place] -= step
            slope = ((reference(*up, causal=causal) - reference(*down, causal=causal)) * g).sum() / (2 * step)
            np.testing.assert_allclose(grad[place], slope, rtol=1e-3, atol=1e-4)


def test_bad_arguments_raise():
    q, k, v = tensors(*operands((1, 1, 3, 8), 4, 8))
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(q, k.to(fl.float64), v)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(q, k, v, attn_mask=fl.ones(3, 4), is_causal=True)
    with pytest.raises(RuntimeError):
        F.scaled_dot_product_attention(q, k, v, attn_mask=fl.ones(3, 5))


def test_results_lie_in_memory_as_the_query_does():
    plain = fl.randn(2, 3, 4, 8)
    projected = fl.randn(2, 4, 3, 8).transpose(1, 2)
    part = fl.randn(2, 4, 72).split(24, -1)[0].view(2, 4, 3, 8).transpose(1, 2)
    for query, stride in ((plain, (96, 32, 8, 1)), (projected, (96, 8, 24, 1)), (part, (96, 8, 24, 1))):
        assert F.scaled_dot_product_attention(query, plain, plain).stride() == stride
        made = fl.compile(lambda q, k: F.scaled_dot_product_attention(q, k, k) * 2)(query, plain)
        fl.testing.assert_close(made, F.scaled_dot_product_attention(query, plain, plain) * 2)


@pytest.mark.host
def test_gradient_refuses_results_of_another_shape():
    q, sums = fl.zeros(1, 1, 64, 8), fl.zeros(1, 1, 64)
    small = fl.zeros(1, 1, 1, 1)
    for grad, result, lse in ((small, small, sums), (q, small, sums), (q, q, sums[..., :1]), (q, q, sums.double())):
        with pytest.raises(RuntimeError, match="expected"):
            fl._ops._flash_attention_backward(grad, q, q, q, None, result, lse, False, None)
