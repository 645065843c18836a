"""Pooling against windows cut out by hand."""

import itertools

import numpy as np
import pytest

import flambeau as fl
import flambeau.nn.functional as F


def windows(x, kernel, stride, padding, dilation=1):
    """The output's spatial shape, and each output place with the input places of its window."""
    ndim = x.ndim - 2
    shape = [(n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for n in x.shape[2:]]
    for place in itertools.product(*map(range, shape)):
        axes = [[p * stride - padding + k * dilation for k in range(kernel)] for p in place]
        axes = [[i for i in axis if 0 <= i < n] for axis, n in zip(axes, x.shape[2:])]
        yield shape, place, np.ix_(range(x.shape[0]), range(x.shape[1]), *axes)
    assert ndim


def pooled(x, reduce, kernel, stride, padding, dilation=1):
    out = None
    for shape, place, index in windows(x, kernel, stride, padding, dilation):
        if out is None:
            out = np.zeros(x.shape[:2] + tuple(shape), x.dtype)
        out[(slice(None), slice(None), *place)] = reduce(x[index])
    return out


def spatial(ndim):
    return tuple(range(2, 2 + ndim))


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("kernel,stride,padding,dilation", [(3, 2, 1, 1), (2, 2, 0, 1), (3, 1, 1, 2), (3, 3, 0, 1)])
@pytest.mark.parametrize("last", [False, True])
def test_max_pool(ndim, kernel, stride, padding, dilation, last):
    x = np.random.default_rng(0).standard_normal((2, 5) + (9, 8, 7)[:ndim]).astype(np.float32)
    order = (0, *range(2, 2 + ndim), 1)
    given = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order)) if last else x
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[ndim - 1]
    want = pooled(x, lambda w: w.max(spatial(ndim)), kernel, stride, padding, dilation)
    np.testing.assert_array_equal(pool(fl.as_tensor(given), kernel, stride, padding, dilation).cpu().numpy(), want)
    values, indices = pool(fl.as_tensor(given), kernel, stride, padding, dilation, return_indices=True)
    np.testing.assert_array_equal(values.cpu().numpy(), want)
    flat = x.reshape(2, 5, -1)
    np.testing.assert_array_equal(
        np.take_along_axis(flat, indices.cpu().numpy().reshape(2, 5, -1), 2), want.reshape(2, 5, -1)
    )


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("kernel,stride,padding", [(3, 2, 1), (2, 2, 0), (3, 1, 0)])
def test_avg_pool_without_padding_counted(ndim, kernel, stride, padding):
    x = np.random.default_rng(1).standard_normal((2, 3) + (9, 8, 7)[:ndim])
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[ndim - 1]
    want = pooled(x, lambda w: w.mean(spatial(ndim)), kernel, stride, padding)
    np.testing.assert_allclose(
        pool(fl.as_tensor(x), kernel, stride, padding, count_include_pad=False).cpu().numpy(), want
    )
    total = pooled(x, lambda w: w.sum(spatial(ndim)), kernel, stride, padding)
    np.testing.assert_allclose(pool(fl.as_tensor(x), kernel, stride, padding).cpu().numpy(), total / kernel**ndim)


def test_avg_pool_divisor_and_integers():
    x = fl.arange(16).reshape(1, 1, 4, 4)
    assert F.avg_pool2d(x, 2).tolist() == [[[[2, 4], [10, 12]]]]
    assert F.avg_pool2d(x.to(fl.float32), 2, divisor_override=1).tolist() == [[[[10, 18], [42, 50]]]]


def test_ceil_mode_adds_the_partial_window():
    x = fl.arange(5, dtype=fl.float32).reshape(1, 1, 5)
    assert F.max_pool1d(x, 2, 2).tolist() == [[[1, 3]]]
    assert F.max_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[[1, 3, 4]]]
    assert F.avg_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[[0.5, 2.5, 4]]]


def test_nan_wins_and_first_maximum_is_reported():
    x = fl.tensor([[[1.0, 1.0, float("nan"), 0.0, 2.0, 2.0]]])
    values, indices = F.max_pool1d(x, 2, return_indices=True)
    assert values.tolist()[0][0][0] == 1 and np.isnan(values.tolist()[0][0][1])
    assert indices.tolist() == [[[0, 2, 4]]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64", "int8"])
def test_max_pool_dtypes(dtype):
    x = np.random.default_rng(2).integers(-50, 50, (1, 2, 6, 6))
    got = F.max_pool2d(fl.as_tensor(x).to(getattr(fl, dtype)), 2)
    assert got.dtype == getattr(fl, dtype)
    np.testing.assert_array_equal(got.to(fl.int64).cpu().numpy(), x.reshape(1, 2, 3, 2, 3, 2).max((3, 5)))


@pytest.mark.parametrize("size", [1, 3, 4, (5, 2), (None, 3)])
def test_adaptive(size):
    x = np.random.default_rng(3).standard_normal((2, 3, 10, 7))
    sizes = [n if s is None else s for s, n in zip(size if isinstance(size, tuple) else (size, size), x.shape[2:])]
    cuts = [[(i * n // s, -(-(i + 1) * n // s)) for i in range(s)] for s, n in zip(sizes, x.shape[2:])]
    mean = np.array([[x[:, :, a:b, c:d].mean((2, 3)) for c, d in cuts[1]] for a, b in cuts[0]]).transpose(2, 3, 0, 1)
    most = np.array([[x[:, :, a:b, c:d].max((2, 3)) for c, d in cuts[1]] for a, b in cuts[0]]).transpose(2, 3, 0, 1)
    np.testing.assert_allclose(F.adaptive_avg_pool2d(fl.as_tensor(x), size).cpu().numpy(), mean)
    np.testing.assert_array_equal(F.adaptive_max_pool2d(fl.as_tensor(x), size).cpu().numpy(), most)


def test_unpool_puts_maxima_back():
    x = np.random.default_rng(4).standard_normal((2, 3, 6, 6))
    values, indices = F.max_pool2d(fl.as_tensor(x), 2, return_indices=True)
    back = F.max_unpool2d(values, indices, 2).cpu().numpy()
    assert back.shape == x.shape
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    assert (back != 0).sum() == values.numel()


def test_gradients_are_adjoint():
    rng = np.random.default_rng(5)
    x, g = rng.standard_normal((2, 3, 7, 8)), rng.standard_normal((2, 3, 4, 4))
    values, indices = F.max_pool2d(fl.as_tensor(x), 3, 2, 1, return_indices=True)
    back = fl._ops._pool_scatter(fl.as_tensor(g), indices, [7, 8], True).cpu().numpy()
    np.testing.assert_allclose((back * x).sum(), (g * values.cpu().numpy()).sum())
    back = (
        fl._ops._avg_pool_backward(fl.as_tensor(g), [2, 3, 7, 8], [3, 3], [2, 2], [1, 1], False, False, None)
        .cpu()
        .numpy()
    )
    average = F.avg_pool2d(fl.as_tensor(x), 3, 2, 1, count_include_pad=False).cpu().numpy()
    np.testing.assert_allclose((back * x).sum(), (g * average).sum())
    back = fl._ops._adaptive_avg_pool_backward(fl.as_tensor(g), [2, 3, 7, 8], 2).cpu().numpy()
    np.testing.assert_allclose((back * x).sum(), (g * F.adaptive_avg_pool2d(fl.as_tensor(x), 4).cpu().numpy()).sum())


def test_lp_pool():
    x = np.random.default_rng(6).random((1, 2, 4, 4))
    want = np.sqrt((x**2).reshape(1, 2, 2, 2, 2, 2).sum((3, 5)))
    np.testing.assert_allclose(F.lp_pool2d(fl.as_tensor(x), 2, 2).cpu().numpy(), want)


def test_fractional_windows_cover_the_input():
    x = fl.arange(36, dtype=fl.float32).reshape(1, 1, 6, 6)
    samples = fl.zeros(1, 1, 2)
    values, indices = F.fractional_max_pool2d(x, 2, output_size=3, return_indices=True, _random_samples=samples)
    assert values.tolist()[0][0][2][2] == 35 and indices.tolist()[0][0][2][2] == 35


@pytest.mark.parametrize("options", [{"stride": 0}, {"padding": 2}, {"dilation": 0}])
def test_bad_windows_raise(options):
    with pytest.raises(RuntimeError):
        F.max_pool2d(fl.zeros(1, 1, 4, 4), 2, **options)
    with pytest.raises(RuntimeError):
        F.avg_pool2d(fl.zeros(4, 4), 2)
    with pytest.raises(RuntimeError):
        F.avg_pool2d(fl.zeros(1, 1, 4, 4), 2, divisor_override=0)


AVERAGES = [
    ((7,), {"kernel_size": 2, "stride": 2}),
    ((9,), {"kernel_size": 3, "stride": 1, "padding": 1}),
    ((6, 8), {"kernel_size": 2}),
    ((7, 9), {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}),
    ((8, 6), {"kernel_size": (3, 2), "stride": (3, 1), "padding": (1, 0), "ceil_mode": True}),
    ((5, 5), {"kernel_size": 2, "stride": 3, "divisor_override": 3}),
    ((4, 5, 6), {"kernel_size": 2, "stride": 1}),
    ((3, 6, 4), {"kernel_size": (1, 3, 2), "stride": 2, "padding": (0, 1, 1)}),
]


@pytest.mark.parametrize(("spatial", "options"), AVERAGES)
@pytest.mark.parametrize("last", [False, True])
def test_gradient_of_averages_is_the_transposed_map(spatial, options, last):
    ndim = len(spatial)
    pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[ndim - 1]
    count = int(np.prod(spatial))
    # The pooling as a matrix, from the averages of single elements.
    units = fl.eye(count, dtype=fl.float64).reshape(count, 1, *spatial)
    matrix = pool(units, **options).reshape(count, -1).cpu().numpy()
    for dtype, tolerance in ((fl.float64, 1e-12), (fl.float32, 1e-6), (fl.bfloat16, 2e-2)):
        x = fl.zeros(2, 3, *spatial, dtype=dtype)
        if last and ndim > 1:
            x = x.contiguous(memory_format=fl.channels_last if ndim == 2 else fl.channels_last_3d)
        x.requires_grad_()
        y = pool(x, **options)
        g = fl.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype)
        (got,) = fl.autograd.grad(y, x, g.contiguous(memory_format=fl.channels_last) if last and ndim == 2 else g)
        expected = (g.double().cpu().numpy().reshape(6, -1) @ matrix.T).reshape(x.shape)
        np.testing.assert_allclose(got.double().cpu().numpy(), expected, atol=tolerance)


@pytest.mark.parametrize(
    ("spatial", "size"), [((7,), 3), ((6, 5), 1), ((6, 8), (3, 2)), ((5, 7), (4, 9)), ((4, 3, 5), 2)]
)
def test_gradient_of_adaptive_averages(spatial, size):
    ndim = len(spatial)
    pool = (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[ndim - 1]
    count = int(np.prod(spatial))
    matrix = pool(fl.eye(count, dtype=fl.float64).reshape(count, 1, *spatial), size).reshape(count, -1).cpu().numpy()
    for dtype, tolerance in ((fl.float64, 1e-12), (fl.bfloat16, 2e-2)):
        x = fl.zeros(2, 3, *spatial, dtype=dtype, requires_grad=True)
        y = pool(x, size)
        g = fl.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype)
        (got,) = fl.autograd.grad(y, x, g)
        expected = (g.double().cpu().numpy().reshape(6, -1) @ matrix.T).reshape(x.shape)
        np.testing.assert_allclose(got.double().cpu().numpy(), expected, atol=tolerance)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d", "max_pool3d", "avg_pool3d"])
def test_lists_of_one_number_have_gradients(name):
    pool, dims = getattr(F, name), int(name[-2])
    x = fl.randn(1, 2, *[4] * dims, dtype=fl.float64, requires_grad=True)
    fl.testing.assert_close(pool(x, [2]), pool(x, 2))
    assert fl.autograd.gradcheck(lambda x: pool(x, [2]), (x,))
    assert fl.autograd.gradgradcheck(lambda x: pool(x, [2]), (x,))
