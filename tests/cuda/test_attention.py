"""Attention over blocks on the device against its definition in double precision, with gradients."""

import pathlib
import sys

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from attention_by_definition import attention


@pytest.fixture(autouse=True, params=["0", "1"], ids=["warps", "groups"])
def products(request, monkeypatch):
    """By the products of warps, and by those of groups of them where the device has these."""
    monkeypatch.setenv("FLAMBEAU_FLASH_GROUPS", request.param)


TOLERANCE = {fl.bfloat16: 2e-2, fl.float16: 3e-3}


def make(shape, dtype, rng, layout="plain", device="cuda"):
    b, h, n, d = shape
    values = rng.standard_normal(shape, np.float32)
    if layout == "joined":  # heads side by side in a row, as projections give them
        t = fl.from_numpy(np.ascontiguousarray(values.swapaxes(1, 2))).to(device, dtype).transpose(1, 2)
    elif layout == "turned":  # columns are not neighbours
        t = fl.from_numpy(np.ascontiguousarray(values.swapaxes(2, 3))).to(device, dtype).transpose(2, 3)
    elif layout == "odd":  # rows that are not aligned
        wide = np.zeros((b, h, n, d + 3), np.float32)
        wide[..., 1 : d + 1] = values
        t = fl.from_numpy(wide).to(device, dtype)[..., 1 : d + 1]
    else:
        t = fl.from_numpy(values).to(device, dtype)
    return t.detach(), t.cpu().to(fl.float64).numpy()


def check(shape, keys, dtype, heads=None, causal=False, mask=None, scale=None, layouts=("plain",) * 4, dropout=0.0):
    rng = np.random.default_rng(0)
    b, h, _n, d = shape
    other = (b, heads or h, keys, d)
    made = [make(s, dtype, rng, kind) for s, kind in zip((shape, other, other, shape), layouts)]
    q, k, v, g = (t for t, _ in made)
    for t in (q, k, v):
        t.requires_grad_()
    on_device = None if mask is None else fl.from_numpy(mask).to("cuda")
    fl.manual_seed(5)
    out = F.scaled_dot_product_attention(q, k, v, on_device, dropout, causal, scale=scale, enable_gqa=heads is not None)
    keep = 1
    if dropout:
        fl.manual_seed(5)
        kept = fl.native_dropout(q.new_empty(()).expand(*shape[:3], keys), dropout, True)[1]
        keep = kept.cpu().to(fl.float64).numpy() / (1 - dropout)
    assert out.grad_fn is not None and out.dtype == dtype and tuple(out.shape) == shape
    out.backward(g)
    wanted = attention(*(a for _, a in made), mask, causal, scale, keep)
    for name, got, want in zip(("out", "q", "k", "v"), (out, q.grad, k.grad, v.grad), wanted):
        got = got.detach().cpu().to(fl.float64).numpy()
        worst = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got, want, atol=TOLERANCE[dtype] * worst, rtol=TOLERANCE[dtype], err_msg=name)


LENGTHS = [(64, 64), (128, 128), (1, 300), (300, 1), (200, 70), (33, 17), (70, 257), (513, 513)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries,keys", LENGTHS)
@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16], ids=str)
def test_lengths(queries, keys, causal, dtype):
    check((2, 3, queries, 64), keys, dtype, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("depth", [8, 16, 24, 32, 40, 64, 72, 80, 96, 104, 128])
def test_depths(depth, causal):
    check((1, 2, 140, depth), 150, fl.float16, causal=causal)
    check((1, 2, 140, depth), 150, fl.bfloat16, causal=causal)


@pytest.mark.parametrize("layouts", [("joined",) * 4, ("turned",) * 4, ("odd", "plain", "joined", "odd")], ids=str)
def test_strides(layouts):
    check((2, 4, 90, 64), 90, fl.bfloat16, causal=True, layouts=layouts)


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("depth", [64, 128])
def test_shared_key_heads(heads, depth):
    check((2, 4, 150, depth), 150, fl.float16, heads=heads, causal=True)
    check((2, 4, 70, depth), 200, fl.float16, heads=heads, scale=0.2)


@pytest.mark.parametrize("shape", [(70, 150), (2, 1, 70, 150), (1, 3, 1, 150), (70, 1)])
@pytest.mark.parametrize("depth", [32, 64, 128])
@pytest.mark.parametrize("boolean", [False, True])
def test_masks(shape, depth, boolean):
    mask = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    if boolean:
        mask = mask > -1
    check((2, 3, 70, depth), 150, fl.float16, mask=mask)


def test_query_that_sees_nothing_gets_zero():
    for mask in (np.ones((70, 150), bool), np.zeros((70, 150), np.float32)):
        mask[3] = False if mask.dtype == bool else -np.inf
        check((1, 2, 70, 64), 150, fl.float16, mask=mask)


def test_large_scores_do_not_overflow():
    q = fl.full((1, 1, 100, 64), 30.0, device="cuda", dtype=fl.bfloat16, requires_grad=True)
    k = fl.full((1, 1, 90, 64), -30.0, device="cuda", dtype=fl.bfloat16, requires_grad=True)
    v = fl.randn(1, 1, 90, 64, device="cuda", dtype=fl.bfloat16, requires_grad=True)
    out = F.scaled_dot_product_attention(q, k, v)
    out.sum().backward()
    np.testing.assert_allclose(
        out[0, 0, 7].detach().cpu().float().numpy(), v[0, 0].float().mean(0).detach().cpu().numpy(), atol=1e-2
    )
    for t in (q, k, v):
        assert t.grad.isfinite().all()


def test_gradients_are_the_same_each_time():
    shape = (2, 4, 300, 64)
    q, k, v, g = (fl.randn(shape, device="cuda", dtype=fl.bfloat16) for _ in range(4))

    def run():
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        F.scaled_dot_product_attention(*leaves, is_causal=True).backward(g)
        return [t.grad for t in leaves]

    for a, b in zip(run(), run()):
        assert (a == b).all()


def test_memory_does_not_hold_the_scores():
    q = fl.randn(1, 4, 4096, 64, device="cuda", dtype=fl.bfloat16)
    fl.cuda.reset_peak_memory_stats()
    before = fl.cuda.memory_allocated()
    F.scaled_dot_product_attention(q, q, q)
    assert fl.cuda.max_memory_allocated() - before < 4 * 4096 * 4096 * 2


@pytest.mark.parametrize("layout", ["plain", "joined", "turned"])
def test_results_lie_as_on_the_cpu(layout):
    strides = []
    for device in ("cuda", "cpu"):
        rng = np.random.default_rng(0)
        query, key = (make((2, 3, n, 64), fl.bfloat16, rng, x, device)[0] for n, x in ((20, layout), (30, "plain")))
        strides.append((query.stride(), F.scaled_dot_product_attention(query, key, key).stride()))
    assert strides[0] == strides[1]


@pytest.mark.parametrize("bias", [None, (1, 3, 70, 150), (2, 1, 70, 150), (2, 3, 70, 150), (70, 150)], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_compiled_dropout_and_gradient_of_a_bias(bias, dropout):
    """Compiled kernels agree with the definition, which draws the same numbers, in eager mode."""
    shapes = ((2, 3, 70, 64), (2, 3, 150, 64), (2, 3, 150, 64))
    results = []
    for compiled in (False, True):
        parts = [make(s, fl.bfloat16, np.random.default_rng(i))[0].requires_grad_() for i, s in enumerate(shapes)]
        if bias is not None:
            rng = np.random.default_rng(9)
            parts.append(fl.from_numpy(rng.standard_normal(bias, np.float32)).to("cuda").requires_grad_())

        def attend(q, k, v, b=None):
            return F.scaled_dot_product_attention(q, k, v, b, dropout_p=dropout)

        fl.manual_seed(3)
        out = (fl.compile(attend) if compiled else attend)(*parts)
        out.float().square().sum().backward()
        results.append([t.detach().cpu().to(fl.float64).numpy() for t in (out, *(p.grad for p in parts))])
    for got, want in zip(*results):
        worst = max(1.0, np.abs(want).max())
        np.testing.assert_allclose(got, want, atol=3e-2 * worst, rtol=3e-2)


def test_compiled_attention_refuses_a_mask_in_host_memory():
    q = fl.randn(1, 2, 16, 64, device="cuda").to(fl.bfloat16)
    run = fl.compile(lambda q: F.scaled_dot_product_attention(q, q, q, fl.ones(16, 16, dtype=fl.bool)))
    with pytest.raises(RuntimeError):
        run(q)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "shape,keys,heads,causal",
    [
        ((2, 4, 130, 64), 130, None, True),
        ((1, 4, 65, 128), 71, 2, False),
        ((2, 2, 200, 32), 77, None, False),
        ((1, 2, 100, 20), 64, None, True),
    ],
)
def test_dropout(shape, keys, heads, causal, dtype):
    check(shape, keys, dtype, heads, causal, dropout=0.3)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_dropout_beside_a_mask_keeps_no_scores(dtype):
    rng = np.random.default_rng(3)
    check((2, 2, 70, 64), 90, dtype, mask=rng.random((70, 90)) > 0.2, dropout=0.25)
    q = fl.randn(4, 16, 2048, 64, device="cuda", dtype=dtype)
    fl.cuda.synchronize()
    fl.cuda.reset_peak_memory_stats()
    before = fl.cuda.memory_allocated()
    F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
    assert fl.cuda.max_memory_allocated() - before < 4 * 16 * 2048 * 2048 * 2  # a byte for each score and the result


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("depth", [1, 20, 77, 100, 127])
def test_heads_that_eight_does_not_divide(depth, dtype):
    check((2, 4, 100, depth), 70, dtype, 2)
    check((1, 2, 70, depth), 70, dtype, causal=True, layouts=("joined", "odd", "turned", "joined"))


@pytest.mark.parametrize("keys", [90, 71])
@pytest.mark.parametrize("shared", [(2, 4), (1, 4), (2, 1), (1, 1)])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradients_of_biases(dtype, shared, keys):
    rng = np.random.default_rng(4)
    (q, _), (k, _), (v, _), (g, _) = (make((2, 4, n, 64), dtype, rng) for n in (70, keys, keys, 70))
    bias = fl.from_numpy(rng.standard_normal((*shared, 70, keys)).astype(np.float32)).to("cuda", dtype)
    gradients = []
    for kind in (dtype, fl.float32):
        own = [t.detach().to(kind).requires_grad_() for t in (q, k, v, bias)]
        F.scaled_dot_product_attention(*own).backward(g.to(kind))
        gradients.append([t.grad.float().cpu() for t in own])
    for got, want in zip(*gradients):
        assert got.shape == want.shape
        assert (got - want).norm() < 2 * TOLERANCE[dtype] * want.norm()
