"""Padding with values of the tensor itself, against NumPy, and its gradient against the transposed map."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as fl

F = fl.nn.functional
NUMPY = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
CASES = [
    ((2, 5), (1, 2)),
    ((2, 3, 6), (0, 4)),
    ((2, 3, 4, 5), (1, 2, 3, 0)),
    ((3, 4, 5), (2, 2, 1, 3)),
    ((1, 2, 3, 4, 5), (1, 0, 2, 1, 1, 2)),
]


def widths(shape, pad):
    found = [(0, 0)] * len(shape)
    for k in range(len(pad) // 2):
        found[-1 - k] = (pad[2 * k], pad[2 * k + 1])
    return found


def made(shape, dtype=fl.float32):
    return fl.arange(int(np.prod(shape))).reshape(shape).to(dtype)


@pytest.mark.parametrize("mode", NUMPY)
@pytest.mark.parametrize(("shape", "pad"), CASES)
def test_values_and_gradient(mode, shape, pad):
    x = made(shape, fl.float64).requires_grad_()
    y = F.pad(x, pad, mode)
    expected = np.pad(x.detach().cpu().numpy(), widths(shape, pad), NUMPY[mode])
    np.testing.assert_array_equal(y.detach().cpu().numpy(), expected)
    # Each element gets the sum of the gradients of its copies: find them by padding the elements' numbers.
    g = fl.linspace(-1, 1, y.numel(), dtype=fl.float64).reshape(y.shape)
    y.backward(g)
    numbers = np.pad(np.arange(x.numel()).reshape(shape), widths(shape, pad), NUMPY[mode])
    sums = np.bincount(numbers.ravel(), weights=g.cpu().numpy().ravel(), minlength=x.numel()).reshape(shape)
    np.testing.assert_allclose(x.grad.cpu().numpy(), sums, atol=1e-12)


DTYPES = [fl.bool, fl.uint8, fl.int16, fl.int32, fl.int64, fl.float16, fl.bfloat16, fl.float32, fl.complex64, fl.complex128]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", NUMPY)
def test_every_width_of_element(mode, dtype):
    x = made((2, 3, 4)).remainder(3).to(dtype)
    got = F.pad(x, (2, 1), mode)
    assert got.dtype == dtype
    expected = np.pad(x.to(fl.complex128).cpu().numpy(), widths(x.shape, (2, 1)), NUMPY[mode])
    np.testing.assert_array_equal(got.to(fl.complex128).cpu().numpy(), expected)


@pytest.mark.parametrize("dtype", [fl.bfloat16, fl.float16, fl.complex64], ids=str)
def test_gradient_is_summed_in_the_type_of_computation(dtype):
    x = fl.ones(1, 1, 3, 3, dtype=dtype).requires_grad_()
    y = F.pad(x, (2, 2, 2, 2), "replicate")
    y.backward(fl.ones_like(y))
    np.testing.assert_array_equal(x.grad.to(fl.complex64).cpu().numpy().real[0, 0], [[9, 3, 9], [3, 1, 3], [9, 3, 9]])


@pytest.mark.parametrize("mode", NUMPY)
def test_any_strides(mode):
    base = made((4, 6, 5, 3))
    for x in (base.permute(0, 3, 1, 2), base.transpose(1, 3), base[:, ::2], base.flip(3), base[:1].expand(2, 6, 5, 3)):
        expected = np.pad(x.cpu().numpy(), widths(x.shape, (1, 2, 2, 1)), NUMPY[mode])
        np.testing.assert_array_equal(F.pad(x, (1, 2, 2, 1), mode).cpu().numpy(), expected)
        leaf = x.detach().clone().requires_grad_()
        y = F.pad(leaf, (1, 2, 2, 1), mode)
        g = fl.arange(y.numel()).float().reshape(y.shape)
        strided = g.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        (one,) = fl.autograd.grad(y, leaf, g, retain_graph=True)
        (other,) = fl.autograd.grad(y, leaf, strided)
        assert fl.equal(one, other)


def test_channels_last_stays():
    x = made((2, 3, 4, 5)).contiguous(memory_format=fl.channels_last)
    for mode in NUMPY:
        assert F.pad(x, (1, 1, 1, 1), mode).is_contiguous(memory_format=fl.channels_last)


@pytest.mark.parametrize(
    ("mode", "pad", "sources"),
    [
        ("reflect", (-1, 2), [1, 2, 3, 4, 3, 2]),
        ("reflect", (-5, 4), [3, 2, 1, 0]),
        ("replicate", (-2, 3), [2, 3, 4, 4, 4, 4]),
        ("replicate", (-7, 4), [4, 4]),
        ("replicate", (3, -4), [0, 0, 0, 0]),
        ("circular", (-1, 2), [1, 2, 3, 4, 1, 2]),
        ("circular", (2, -1), [2, 3, 0, 1, 2, 3]),
        ("reflect", (-1, -2), [1, 2]),
    ],
)
def test_negative_paddings_crop(mode, pad, sources):
    x = (made((2, 5)) + 1).requires_grad_()
    y = F.pad(x, pad, mode)
    np.testing.assert_array_equal(y.detach().cpu().numpy(), x.detach().cpu().numpy()[:, sources])
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.cpu().numpy()[0], np.bincount(sources, minlength=5))


def test_empty_batches():
    for mode in NUMPY:
        x = fl.ones(0, 3, 4).requires_grad_()
        y = F.pad(x, (1, 2), mode)
        assert y.shape == (0, 3, 7)
        y.sum().backward()
        assert x.grad.shape == x.shape


def test_the_result_is_a_copy():
    x = made((2, 5))
    for mode in NUMPY:
        F.pad(x, (0, 0), mode).zero_()
    assert x[1, 4] == 9


def test_meta():
    x = fl.empty(2, 3, 4, 5, device="meta", requires_grad=True)
    y = F.pad(x, (1, 2, 2, 0), "reflect")
    assert y.is_meta and y.shape == (2, 3, 6, 8)
    y.sum().backward()
    assert x.grad.is_meta and x.grad.shape == x.shape


def test_refusals():
    x = made((2, 3, 4))
    for pad, mode in (((4, 0), "reflect"), ((0, 5), "circular"), ((-3, -1), "replicate")):
        with pytest.raises(RuntimeError):
            F.pad(x, pad, mode)
        with pytest.raises(RuntimeError):
            fl._ops._edge_pad(x, (pad[0], pad[1] - 1) if mode == "replicate" else pad, mode)
    for pad in ((2**62, 2**62), (-(2**62), 2**62)):
        with pytest.raises((RuntimeError, MemoryError)):
            fl._ops._edge_pad(x, pad, "replicate")
    with pytest.raises(RuntimeError, match="mode"):
        fl._ops._edge_pad(x, (1, 1), "mirror")
    with pytest.raises(RuntimeError, match="gradient of shape"):
        fl._ops._edge_pad_backward(x, [2, 3, 4], (1, 1), "reflect")


def test_gradients_of_gradients_and_batches():
    x = made((1, 2, 4), fl.float64).requires_grad_()
    for mode in NUMPY:
        assert fl.autograd.gradgradcheck(lambda t, mode=mode: F.pad(t * t, (1, 2), mode), (x,))
    many = made((3, 2, 2, 4))
    got = fl.func.vmap(lambda t: F.pad(t, (1, 2), "reflect"))(many)
    assert fl.equal(got, fl.stack([F.pad(t, (1, 2), "reflect") for t in many]))
    slope = fl.func.vmap(fl.func.grad(lambda t: (F.pad(t, (1, 2), "reflect") ** 2).sum()))(many)
    assert fl.equal(slope[1], fl.func.grad(lambda t: (F.pad(t, (1, 2), "reflect") ** 2).sum())(many[1]))
