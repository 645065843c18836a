"""Attention over packed sequences equals attention over each sequence."""

import pytest

import flambeau as fl
from flambeau.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

STARTS = fl.tensor([0, 2, 7], dtype=fl.int32)


@pytest.mark.parametrize("causal", [False, True])
def test_each_sequence_by_itself(causal):
    q, k, v = (fl.randn(7, 2, 4, requires_grad=True) for _ in range(3))
    window = (-1, 0) if causal else (-1, -1)
    out, lse = varlen_attn(q, k, v, STARTS, STARTS, 5, 5, window_size=window, return_aux=AuxRequest(lse=True))
    assert lse.shape == (2, 7)
    for a, b in ((0, 2), (2, 7)):
        parts = (t[a:b].transpose(0, 1) for t in (q, k, v))
        want = fl.nn.functional.scaled_dot_product_attention(*parts, is_causal=causal).transpose(0, 1)
        fl.testing.assert_close(out[a:b], want)
    out.sum().backward()
    assert all(t.grad is not None for t in (q, k, v))
    with fl.no_grad():
        written = fl.empty(7, 2, 4)
        assert varlen_attn_out(written, q, k, v, STARTS, STARTS, 5, 5, window_size=window) is written
        fl.testing.assert_close(written, out.detach())


def test_a_window_of_keys():
    q = fl.randn(7, 2, 4)
    seen = (fl.arange(5)[:, None] - fl.arange(5)).abs() <= 1
    part = q[2:].transpose(0, 1)
    want = fl.nn.functional.scaled_dot_product_attention(part, part, part, seen).transpose(0, 1)
    fl.testing.assert_close(varlen_attn(q, q, q, STARTS, STARTS, 5, 5, window_size=(1, 1))[2:], want)
