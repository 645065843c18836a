"""Operators of ATen that are functions of the library's under other arguments."""

import pytest

import flambeau as fl

aten, F = fl.ops.aten, fl.nn.functional


@pytest.mark.parametrize(
    ("name", "mode", "shape"),
    [("upsample_nearest1d", "nearest", (2, 3, 5)), ("upsample_nearest2d", "nearest", (2, 3, 5, 4)),
     ("_upsample_nearest_exact2d", "nearest-exact", (2, 3, 5, 4))],
)  # fmt: skip
def test_resizing_to_the_nearest(name, mode, shape):
    x, size = fl.randn(shape), [7] * (len(shape) - 2)
    assert fl.equal(getattr(aten, name)(x, size), F.interpolate(x, size=size, mode=mode))
    out = fl.empty(0)
    assert fl.equal(getattr(fl._C._nn, name)(x, size, out=out), out)


@pytest.mark.parametrize("align_corners", [False, True])
def test_resizing_by_lines(align_corners):
    x = fl.randn(2, 3, 5, 4)
    expected = F.interpolate(x, size=[9, 9], mode="bilinear", align_corners=align_corners)
    assert fl.equal(aten.upsample_bilinear2d(x, [9, 9], align_corners), expected)


def test_padding():
    x = fl.randn(2, 3, 5, 4)
    assert fl.equal(aten.reflection_pad2d(x, [1, 1, 2, 2]), F.pad(x, [1, 1, 2, 2], mode="reflect"))
    assert fl.equal(aten.replication_pad2d(x, [1, 1, 2, 2]), F.pad(x, [1, 1, 2, 2], mode="replicate"))


@pytest.mark.parametrize(("padding_idx", "scale"), [(-1, False), (1, False), (-1, True)])
def test_gradient_of_a_table(padding_idx, scale):
    weight, places = fl.randn(4, 3, requires_grad=True), fl.tensor([[1, 2], [2, 0]])
    gradient = fl.randn(2, 2, 3)
    options = {"scale_grad_by_freq": scale}
    out = F.embedding(places, weight, padding_idx=None if padding_idx < 0 else padding_idx, **options)
    (expected,) = fl.autograd.grad(out, weight, gradient)
    assert fl.allclose(aten.embedding_dense_backward(gradient, places, 4, padding_idx, scale), expected)


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_a_convolution(transposed):
    x, w = fl.randn(2, 4, 6, 6, requires_grad=True), fl.randn(4, 4, 3, 3, requires_grad=True)
    options = ([1, 1], [1, 1], [1, 1], transposed, [0, 0], 1)
    b = fl.randn(4, requires_grad=True)
    out = fl.convolution(x, w, b, *options)
    gradient = fl.randn(out.shape)
    expected = fl.autograd.grad(out, (x, w, b), gradient)
    results = aten.convolution_backward(gradient, x, w, [4], *options, [True, True, True])
    assert all(fl.allclose(a, b, atol=1e-5) for a, b in zip(results, expected))
    assert aten.convolution_backward(gradient, x, w, [4], *options, [True, False, False])[1:] == (None, None)


def test_unique_gives_three_results_always():
    values, inverse, counts = fl._unique2(fl.tensor([2, 1, 2]), True, True)
    assert values.tolist() == [1, 2] and inverse.tolist() == [1, 0, 1] and counts.numel() == 0
    assert fl.unique_dim(fl.tensor([[1], [1]]), 0, return_counts=True)[2].tolist() == [2]
