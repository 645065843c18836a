"""Operators of ONNX as functions."""

import pytest

import flambeau as fl
from flambeau import nn
from flambeau.onnx import ops
from flambeau.testing import assert_close

pytest.importorskip("onnx")


class Custom(nn.Module):
    def forward(self, x):
        one = ops.symbolic(
            "own.domain::One", (x, None), {"axis": 1, "names": ["a", "b"]}, dtype=x.dtype, shape=x.shape, version=2
        )
        first, second = ops.symbolic_multi_out("Two", (one,), dtypes=(1, fl.int64), shapes=([2], x.shape))
        return first, second


def test_symbolic_operators_are_nodes_of_the_model():
    eager = Custom()(fl.ones(2, 3))
    assert [tuple(t.shape) for t in eager] == [(2,), (2, 3)]
    assert eager[1].dtype == fl.int64
    proto = fl.onnx.export(Custom(), (fl.ones(2, 3),)).model_proto
    one, two = proto.graph.node
    assert (one.op_type, one.domain, two.op_type, two.domain) == ("One", "own.domain", "Two", "")
    assert {a.name for a in one.attribute} == {"axis", "names"}
    assert {o.domain: o.version for o in proto.opset_import}["own.domain"] == 2


def test_attention_is_scaled_dot_product_attention():
    q, k, v = fl.randn(3, 1, 2, 5, 4)
    result, key, _, scores = ops.attention(q, k, v, is_causal=True)
    assert_close(result, nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert_close(scores, q @ k.transpose(-2, -1) / 2)
    assert key is k


def test_rotary_embedding_turns_pairs():
    angle = fl.randn(1, 3, 2)
    x = fl.randn(1, 2, 3, 4)
    turned = ops.rotary_embedding(x, angle.cos(), angle.sin())
    pairs = fl.complex(*x.chunk(2, -1)) * fl.polar(fl.ones_like(angle), angle).unsqueeze(1)
    assert_close(turned, fl.cat((pairs.real, pairs.imag), -1))
