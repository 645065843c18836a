"""linear_cross_entropy over pieces of the batch gives what it gives at once."""

import pytest

import flambeau as fl


def operands():
    fl.manual_seed(0)
    return fl.randn(7, 3), fl.randn(5, 3), fl.tensor([0, 4, 2, -100, 1, 3, 2]), fl.randn(5), fl.rand(5)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("size", [None, 1, 3, 100])
def test_pieces_agree_with_the_whole(reduction, smoothing, size):
    x, w, t, bias, weight = operands()
    options = fl.nn.LinearCrossEntropyOptions(batch_chunk_size=size)
    for kw in ({}, {"linear_bias": bias}, {"weight": weight}):
        kw = {**kw, "reduction": reduction, "label_smoothing": smoothing}
        whole = fl.nn.functional.linear_cross_entropy(x, w, t, **kw)
        pieces = fl.nn.functional.linear_cross_entropy(x, w, t, options=options, **kw)
        assert pieces.shape == whole.shape
        assert fl.allclose(pieces, whole, atol=1e-5)


def test_derivatives_of_pieces():
    x, w, t, _, _ = operands()
    grads = []
    for options in (None, fl.nn.LinearCrossEntropyOptions(batch_chunk_size=2)):
        leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
        fl.nn.functional.linear_cross_entropy(*leaves, t, options=options).backward()
        grads.append([leaf.grad for leaf in leaves])
    for a, b in zip(*grads):
        assert fl.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [{"acc_policy": "x"}, {"chunking_method": "aspect_ratio:0"}, {"batch_chunk_size": 0}, {"acc_dtype": fl.int64}],
)
def test_options_are_checked(wrong):
    with pytest.raises(ValueError):
        fl.nn.LinearCrossEntropyOptions(**wrong)
