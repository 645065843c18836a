"""Tensors with tangents."""

import pytest

import flambeau as fl
from flambeau.autograd import forward_ad


def test_tangents_of_results():
    x, direction = fl.tensor([0.5, 2.0]), fl.tensor([1.0, 3.0])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction)
        assert forward_ad.unpack_dual(dual).tangent is direction
        primal, tangent = forward_ad.unpack_dual(dual * dual + 1)
        assert forward_ad.unpack_dual(x).tangent is None
    fl.testing.assert_close(primal, x * x + 1, check_stride=False)
    fl.testing.assert_close(tangent, 2 * x * direction)


def test_several_duals_through_a_module():
    layer, x = fl.nn.Linear(3, 2), fl.ones(1, 3)
    with forward_ad.dual_level():
        names = dict(layer.named_parameters())
        with_tangents = {name: forward_ad.make_dual(p, fl.ones_like(p)) for name, p in names.items()}
        out = fl.func.functional_call(layer, with_tangents, (x,))
        assert forward_ad.unpack_dual(out).tangent.tolist() == [[4.0, 4.0]]


def test_only_inside_of_a_level():
    with pytest.raises(RuntimeError, match="dual_level"):
        forward_ad.make_dual(fl.ones(2), fl.ones(2))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="tangent"):
        forward_ad.make_dual(fl.ones(2), fl.ones(3))
    assert forward_ad.unpack_dual(fl.ones(2)).tangent is None
