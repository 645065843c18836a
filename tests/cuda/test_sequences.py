"""Scans, orders and made sequences on the device against the CPU, in the shapes that decide how kernels share out lines:
long ones and short ones, few and many, side by side, with NaN and equals among them."""

import math

import pytest

import flambeau as fl

FLOATS = [fl.float32, fl.bfloat16, fl.float16, fl.float64]
DTYPES = [*FLOATS, fl.int64, fl.int32, fl.int8, fl.uint8]
SHAPES = [
    (1,),
    (7,),
    (300,),
    (5000,),
    (200_000,),
    (3, 70_001),
    (2000, 5),
    (40, 700),
    (3, 200, 64),
    (5000, 40),
    (2, 3, 30_000),
    (),
]


def numbers(shape, dtype, limit=50):
    """With equals and, where there are such, NaN and zeros of both signs."""
    x = fl.randint(-limit if dtype.is_signed else 0, limit, shape).to(dtype)
    if dtype.is_floating_point and x.numel() > 10:
        x = x + fl.randint(0, 2, shape).to(dtype) / 2
        flat = x.view(-1)
        flat[3::1009] = math.nan
        flat[5::97] = -0.0
    return x


def same(function, x, *args, exact=True, **options):
    got, want = function(x.cuda(), *args, **options), function(x, *args, **options)
    got, want = ([x] if isinstance(x, fl.Tensor) else list(x) for x in (got, want))
    for g, w in zip(got, want):
        assert g.is_cuda and (g.shape, g.dtype, g.stride()) == (w.shape, w.dtype, w.stride())
        if exact:
            assert fl.equal(fl.nan_to_num(g.cpu().double(), 1e6), fl.nan_to_num(w.double(), 1e6))
        else:
            tolerance = {fl.bfloat16: 2e-2, fl.float16: 2e-3, fl.float32: 2e-5}.get(w.dtype, 1e-10)
            assert fl.allclose(g.cpu().double(), w.double(), tolerance, tolerance, equal_nan=True)


def dims(x):
    return range(-1, x.dim()) if x.dim() < 3 else range(x.dim())


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float64, fl.int64, fl.complex64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_running_sums(shape, dtype):
    fl.manual_seed(0)
    x = fl.rand(shape) if dtype.is_floating_point or dtype.is_complex else fl.randint(-9, 9, shape)
    x = x.to(dtype)
    for dim in dims(x):
        same(fl.cumsum, x, dim, exact=False)
        same(fl.cumprod, 1 + x / 1e4 if x.is_floating_point() else x, dim, exact=False)
        if x.is_floating_point():
            same(fl.logcumsumexp, x * 50, dim, exact=False)
    if x.dim() > 1:
        same(fl.cumsum, x.transpose(0, 1), 0, exact=False)


def test_running_sums_keep_their_extremes():
    x = fl.tensor([-math.inf, 1.0, -200.0, 300.0, math.nan, 2.0])
    same(fl.logcumsumexp, x, 0, exact=False)
    same(fl.logcumsumexp, x[:4], 0, exact=False)
    assert fl.equal(fl.cumsum(fl.ones(10_000_000, device="cuda"), 0)[-3:].cpu(), fl.tensor([9999998.0, 9999999.0, 1e7]))
    big = fl.randn(3_000_000, device="cuda")
    assert fl.equal(fl.cumsum(big, 0), fl.cumsum(big, 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_orders(shape, dtype):
    fl.manual_seed(0)
    x = numbers(shape, dtype)
    for dim in dims(x):
        n = x.shape[dim] if x.dim() else 1
        for descending in (False, True):
            same(fl.sort, x, dim=dim, descending=descending, stable=True)
            for k in {1, min(n, 40), min(n, 900), n if n < 3000 else 1}:
                same(fl.topk, x, k, dim, descending)
        for k in {1, (n + 1) // 3 or 1, n}:
            same(fl.kthvalue, x, k, dim)
        same(fl.median, x, dim)
        same(fl.nanmedian, x, dim, True)
        same(fl.mode, x, dim)
        same(fl.cummax, x, dim)
        same(fl.cummin, x, dim)
    same(fl.median, x)
    same(fl.nanmedian, x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unique_values(dtype):
    fl.manual_seed(0)
    for shape in ((0,), (1,), (50,), (30, 200), (100_000,), ()):
        x = numbers(shape, dtype)
        for consecutive in (False, True):
            find = fl.unique_consecutive if consecutive else fl.unique
            same(find, x, return_inverse=True, return_counts=True)
            same(find, x)


def test_orders_of_nothing():
    x = fl.zeros(0, 5)
    for dim in (0, 1):
        same(fl.sort, x, dim)
        same(fl.cumsum, x, dim)
        same(fl.cummax, x, dim)
        same(fl.topk, x, 0, dim)
    same(fl.median, x, 1)
    same(fl.mode, x, 1)
    same(fl.median, x)
    for find in (fl.median, fl.mode, lambda t, d: fl.kthvalue(t, 1, d)):
        with pytest.raises(IndexError):
            find(x.cuda(), 0)
    with pytest.raises(RuntimeError):
        fl.kthvalue(fl.zeros(3, device="cuda"), 4)


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.uint8, fl.float64, fl.complex128], ids=str)
def test_reversals_and_triangles(dtype):
    fl.manual_seed(0)
    for shape in ((5,), (64, 128), (63, 127), (3, 20, 48), (2, 3, 4, 5), (1, 300), (0, 4), (2, 600, 70)):
        x = fl.randint(0, 99, shape).to(dtype)
        views = [x, x[..., 1:]] + ([x.transpose(0, -1)] if x.dim() > 1 else [])
        for view in views:
            for chosen in ([0], [-1], list(range(x.dim())), []):
                assert fl.equal(fl.flip(view.cuda(), chosen).cpu(), fl.flip(view, chosen))
            if x.dim() > 1:
                for diagonal in (0, 1, -3, 1000, -1000):
                    assert fl.equal(fl.tril(view.cuda(), diagonal).cpu(), fl.tril(view, diagonal))
                    assert fl.equal(fl.triu(view.cuda(), diagonal).cpu(), fl.triu(view, diagonal))


def test_triangular_places():
    for rows, columns in ((5, 5), (4, 9), (9, 4), (1, 1), (0, 3), (3, 0), (100, 257)):
        for offset in (0, 1, -1, 3, -4, 300, -300):
            for dtype in (fl.int64, fl.int32):
                for make in (fl.tril_indices, fl.triu_indices):
                    got = make(rows, columns, offset, dtype=dtype, device="cuda")
                    assert got.is_cuda and fl.equal(got.cpu(), make(rows, columns, offset, dtype=dtype))


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.float64, fl.int64, fl.uint8, fl.complex64], ids=str)
def test_spaced_numbers(dtype):
    for start, end in ((0, 10), (-3, 100), (7, 1)):
        for steps in (0, 1, 2, 5, 100, 1001):
            got = fl.linspace(start, end, steps, dtype=dtype, device="cuda")
            assert got.is_cuda and fl.equal(got.cpu(), fl.linspace(start, end, steps, dtype=dtype))
            got = fl.logspace(start / 100, end / 100, steps, base=3, dtype=dtype, device="cuda")
            want = fl.logspace(start / 100, end / 100, steps, base=3, dtype=dtype)
            assert (
                got.is_cuda
                and got.dtype is dtype
                and fl.allclose(got.cpu(), want, 1e-2 if dtype is fl.bfloat16 else 1e-6)
            )
    assert fl.equal(fl.linspace(fl.tensor(1.0, device="cuda"), 2, 4).cpu(), fl.linspace(1, 2, 4))


@pytest.mark.parametrize("n", [0, 1, 2, 50, 5000, 300_000])
def test_permutations_are_those_of_the_cpu(n):
    for dtype in (fl.int64, fl.int32, fl.float64):
        fl.manual_seed(5)
        want = fl.randperm(n, dtype=dtype)
        fl.manual_seed(5)
        got = fl.randperm(n, dtype=dtype, device="cuda")
        assert got.is_cuda and got.dtype is dtype and fl.equal(got.cpu(), want)
        assert fl.equal(want.sort()[0], fl.arange(n, dtype=dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_histograms(dtype):
    fl.manual_seed(0)
    x = fl.randn(100_000).to(dtype)
    same(fl.histc, x, 100)
    same(fl.histc, x, 7, -1, 1.5)
    same(fl.histc, x[:0], 5)
    same(fl.histc, fl.full((9,), 2.0).to(dtype), 4)
    same(fl.histc, fl.cat([x, fl.full((5,), math.nan).to(dtype)]), 5000, -2, 2)
    same(fl.histc, x.reshape(100, 1000).t(), 10, -3, 3)
    with pytest.raises(RuntimeError, match="finite"):
        fl.histc(fl.tensor([1.0, math.inf], dtype=dtype, device="cuda"))


def test_counts():
    fl.manual_seed(0)
    for most in (1, 9, 20_000):
        for dtype in (fl.int64, fl.int32, fl.uint8):
            x = fl.randint(0, most if dtype is not fl.uint8 else min(most, 200), (70_000,)).to(dtype)
            same(fl.bincount, x)
            same(fl.bincount, x[::2], None, 300)
    same(fl.bincount, x[:0], None, 4)
    same(lambda t: fl.bincount(t, fl.ones_like(t, dtype=fl.float64)), x)
    with pytest.raises(RuntimeError, match="negative"):
        fl.bincount(fl.tensor([1, -1], device="cuda"))


def test_draws_without_replacement_are_those_of_the_cpu():
    weights = fl.rand(20, 3000)
    weights[:, ::7] = 0
    for view in (weights, weights[:, 1:7].t(), weights[3], weights.bfloat16()):
        for count in (1, 15):
            fl.manual_seed(2)
            want = fl.multinomial(view, count)
            fl.manual_seed(2)
            assert fl.equal(fl.multinomial(view.cuda(), count).cpu(), want)
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(RuntimeError):
            fl.multinomial(fl.tensor([[1.0, 2.0], [1.0, bad]], device="cuda"), 1)
    with pytest.raises(RuntimeError):
        fl.multinomial(fl.zeros(2, 3, device="cuda"), 1)
