"""Convolutions against a direct sum over the kernel's elements, and their gradients against finite sums."""

import itertools

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F


def reference(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    """Sums shifted, strided copies of the padded input; any number of spatial dimensions."""
    ndim = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * ndim)
    sizes = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:])]
    out = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for g in range(groups):
        channels = x[:, g * per_in : (g + 1) * per_in]
        for place in itertools.product(*(range(k) for k in w.shape[2:])):
            window = channels[
                (slice(None), slice(None))
                + tuple(slice(p * dilation, p * dilation + (n - 1) * stride + 1, stride) for p, n in zip(place, sizes))
            ]
            kernel = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *place)]
            out[:, g * per_out : (g + 1) * per_out] += np.einsum("nc...,oc->no...", window, kernel)
    if b is not None:
        out += b.reshape(1, -1, *([1] * ndim))
    return out


def arrays(rng, *shapes, dtype=np.float64):
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}])
def test_forward_matches_direct_sum(ndim, options):
    rng = np.random.default_rng(0)
    groups = options.get("groups", 1)
    x, w, b = arrays(rng, (2, 4) + (7, 6, 5)[:ndim], (6, 4 // groups) + (3, 2, 3)[:ndim], (6,))
    conv = (F.conv1d, F.conv2d, F.conv3d)[ndim - 1]
    got = conv(fl.as_tensor(x), fl.as_tensor(w), fl.as_tensor(b), **options)
    np.testing.assert_allclose(got.cpu().numpy(), reference(x, w, b, **options), atol=1e-10)


@pytest.mark.parametrize("dtype,tolerance", [("float32", 1e-4), ("bfloat16", 6e-2), ("float16", 2e-2), ("int64", 0)])
def test_dtypes(dtype, tolerance):
    rng = np.random.default_rng(1)
    x, w = (np.round(a * 2) for a in arrays(rng, (1, 3, 8, 8), (4, 3, 3, 3)))
    to = getattr(fl, dtype)
    got = fl.conv2d(fl.as_tensor(x).to(to), fl.as_tensor(w).to(to), padding=1)
    assert got.dtype == to
    np.testing.assert_allclose(
        got.to(fl.float64).cpu().numpy(), reference(x, w, padding=1), rtol=tolerance, atol=tolerance
    )


def test_transposed_is_the_adjoint():
    rng = np.random.default_rng(2)
    x, w, y = arrays(rng, (2, 4, 9, 8), (6, 2, 3, 3), (2, 6, 5, 4))
    options = {"stride": 2, "padding": 1, "groups": 2}
    forward = reference(x, w, **options)
    assert forward.shape == y.shape
    back = F.conv_transpose2d(fl.as_tensor(y), fl.as_tensor(w), output_padding=(0, 1), **options).cpu().numpy()
    assert back.shape == x.shape
    np.testing.assert_allclose((forward * y).sum(), (x * back).sum())


def test_backward_matches_adjoint_and_sums():
    rng = np.random.default_rng(3)
    x, w, g = arrays(rng, (2, 3, 6, 7), (4, 3, 3, 3), (2, 4, 3, 4))
    arguments = ([2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
    dx, dw, db = fl._ops._convolution_backward(fl.as_tensor(g), fl.as_tensor(x), fl.as_tensor(w), *arguments)
    np.testing.assert_allclose(db.cpu().numpy(), g.sum((0, 2, 3)))
    # The product is linear in each operand, so that the gradients are adjoints.
    other_x, other_w = arrays(rng, x.shape, w.shape)
    np.testing.assert_allclose(
        (dx.cpu().numpy() * other_x).sum(), (g * reference(other_x, w, stride=2, padding=1)).sum()
    )
    np.testing.assert_allclose(
        (dw.cpu().numpy() * other_w).sum(), (g * reference(x, other_w, stride=2, padding=1)).sum()
    )


def test_transposed_backward():
    rng = np.random.default_rng(4)
    x, w, g = arrays(rng, (2, 4, 3, 3), (4, 2, 3, 3), (2, 2, 5, 5))
    arguments = ([2, 2], [1, 1], [1, 1], True, [0, 0], 1, [True, True, True])
    dx, dw, db = fl._ops._convolution_backward(fl.as_tensor(g), fl.as_tensor(x), fl.as_tensor(w), *arguments)
    np.testing.assert_allclose(dx.cpu().numpy(), reference(g, w, stride=2, padding=1), atol=1e-10)
    np.testing.assert_allclose(db.cpu().numpy(), g.sum((0, 2, 3)))
    (other,) = arrays(rng, w.shape)
    np.testing.assert_allclose((dw.cpu().numpy() * other).sum(), (x * reference(g, other, stride=2, padding=1)).sum())


# Geometries of many channels and few positions, which are computed as one product, and their neighbours, which are not.
PRODUCTS = [
    ((5, 48, 4, 4), (40, 48, 3, 3), {"padding": 1}),
    ((2, 32, 7, 9), (64, 32, 3, 3), {"stride": 2, "padding": 1}),
    ((1, 40, 5, 5), (96, 40, 1, 1), {}),
    ((3, 32, 6, 6), (48, 32, 1, 1), {"stride": 2}),
    ((2, 36, 10, 8), (34, 36, 3, 2), {"dilation": 2, "padding": 2}),
    ((4, 33, 9), (35, 33, 4), {"padding": 1, "stride": 3}),
    ((1, 32, 3, 4, 4), (32, 32, 2, 3, 3), {"padding": 1}),
    ((70, 64, 16, 2), (64, 64, 3, 3), {"padding": 1}),
    ((4, 32, 20, 20), (32, 32, 3, 3), {"padding": 1}),
]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape,kernel,options", PRODUCTS)
def test_float_passes_of_many_channels(shape, kernel, options, last):
    rng = np.random.default_rng(8)
    ndim = len(shape) - 2
    x, w, b = arrays(rng, shape, kernel, kernel[:1], dtype=np.float32)
    expected = reference(x, w, b, **options)
    given = fl.as_tensor(x)
    if last:
        given = fl.as_tensor(np.ascontiguousarray(np.moveaxis(x, 1, -1))).movedim(-1, 1)
    weight, bias = fl.as_tensor(w), fl.as_tensor(b)
    conv = (F.conv1d, F.conv2d, F.conv3d)[ndim - 1]
    got = conv(given, weight, bias, **options)
    np.testing.assert_allclose(got.cpu().numpy(), expected, rtol=1e-4, atol=2e-4)
    (g,) = arrays(rng, expected.shape, dtype=np.float32)
    each = [[options.get(k, default)] * ndim for k, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    rest = (*each, False, [0] * ndim, 1, [True, True, True])
    gradients = fl._ops._convolution_backward(fl.as_tensor(g), given, weight, *rest)
    exact = fl._ops._convolution_backward(fl.as_tensor(g).double(), given.double(), weight.double(), *rest)
    for single, double in zip(gradients, exact):
        error = 3e-4 if single.is_cpu else 3e-3  # of the algorithms that libraries choose
        np.testing.assert_allclose(single.cpu().numpy(), double.cpu().numpy(), rtol=1e-4, atol=error)


def test_channels_last_is_kept():
    rng = np.random.default_rng(5)
    x, w = arrays(rng, (2, 4, 5, 6), (3, 4, 3, 3), dtype=np.float32)
    last = fl.as_tensor(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)
    got = fl.conv2d(last, fl.as_tensor(w), padding=1)
    assert got.stride()[1] == 1 and got.shape == (2, 3, 5, 6)
    np.testing.assert_allclose(got.cpu().numpy(), reference(x, w, padding=1), atol=1e-4)


def test_unbatched_and_empty_batch():
    rng = np.random.default_rng(6)
    x, w = arrays(rng, (1, 4, 5), (3, 4, 3))
    got = fl.conv1d(fl.as_tensor(x[0]), fl.as_tensor(w))
    np.testing.assert_allclose(got.cpu().numpy(), reference(x, w)[0], atol=1e-10)
    assert fl.conv1d(fl.as_tensor(x[:0]), fl.as_tensor(w)).shape == (0, 3, 3)


def test_same_padding_keeps_the_size():
    rng = np.random.default_rng(7)
    x, w = arrays(rng, (1, 2, 8, 9), (3, 2, 4, 3))
    got = F.conv2d(fl.as_tensor(x), fl.as_tensor(w), padding="same")
    padded = np.pad(x, [(0, 0), (0, 0), (1, 2), (1, 1)])
    np.testing.assert_allclose(got.cpu().numpy(), reference(padded, w), atol=1e-10)


def test_meta_gives_shapes():
    x = fl.empty(2, 3, 8, 8, device="meta")
    w = fl.empty(5, 3, 3, 3, device="meta")
    out = fl.conv2d(x, w, stride=2)
    assert out.shape == (2, 5, 3, 3) and out.device.type == "meta"


@pytest.mark.parametrize(
    "shape,weight,options",
    [
        ((2, 3, 8), (4, 3, 3, 3), {"groups": 2}),
        ((2, 5, 8, 8), (4, 3, 3, 3), {}),
        ((2, 3, 2, 2), (4, 3, 3, 3), {}),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"stride": 0}),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"padding": -1}),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"groups": 0}),
    ],
)
def test_bad_arguments_raise(shape, weight, options):
    with pytest.raises(RuntimeError):
        fl.conv2d(fl.zeros(*shape), fl.zeros(*weight), **options)


@pytest.mark.parametrize("spatial", [(70,), (9, 8), (4, 5, 4)])
@pytest.mark.parametrize("biased", [False, True])
def test_kernels_of_one_element(spatial, biased):
    ndim = len(spatial)
    rng = np.random.default_rng(ndim)
    conv = (F.conv1d, F.conv2d, F.conv3d)[ndim - 1]
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[ndim - 1]
    x = fl.tensor(rng.standard_normal((3, 5, *spatial)).astype(np.float32), requires_grad=True)
    w = fl.tensor(rng.standard_normal((7, 5, *[1] * ndim)).astype(np.float32), requires_grad=True)
    b = fl.tensor(rng.standard_normal(7).astype(np.float32), requires_grad=True) if biased else None
    y = conv(x, w, b)
    matrix = w.detach().cpu().numpy().reshape(7, 5)
    expected = np.einsum("nc...,oc->no...", x.detach().cpu().numpy(), matrix)
    if biased:
        expected += b.detach().cpu().numpy().reshape(1, 7, *[1] * ndim)
    np.testing.assert_allclose(y.detach().cpu().numpy(), expected, atol=1e-5)
    g = rng.standard_normal(y.shape).astype(np.float32)
    y.backward(fl.tensor(g))
    np.testing.assert_allclose(x.grad.cpu().numpy(), np.einsum("no...,oc->nc...", g, matrix), atol=1e-5)
    flat = x.detach().cpu().numpy().reshape(3, 5, -1)
    slope = np.einsum("nol,ncl->oc", g.reshape(3, 7, -1), flat)
    np.testing.assert_allclose(w.grad.cpu().numpy().reshape(7, 5), slope, atol=1e-4)
    if biased:
        np.testing.assert_allclose(b.grad.cpu().numpy(), g.reshape(3, 7, -1).sum((0, 2)), atol=1e-4)
    # The same matrix the other way round, and with activations that do not lie in order.
    back = transposed(fl.tensor(g), w.detach(), fl.arange(5).float())
    turned = np.einsum("no...,oc->nc...", g, matrix) + np.arange(5).reshape(1, 5, *[1] * ndim)
    np.testing.assert_allclose(back.cpu().numpy(), turned, atol=1e-5)
    strided = x.detach().transpose(1, -1).contiguous().transpose(1, -1)
    np.testing.assert_allclose(conv(strided, w.detach()).cpu().numpy(), np.einsum("nc...,oc->no...", strided.cpu().numpy(), matrix), atol=1e-5)  # fmt: skip
