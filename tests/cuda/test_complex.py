"""Complex numbers and Fourier transforms on the device against the CPU."""

import itertools

import pytest

import flambeau as fl

DTYPES = [fl.complex64, fl.complex128]
UNARY = (
    "exp log log2 log10 log1p expm1 sqrt rsqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sigmoid "
    "reciprocal square neg abs angle sgn conj_physical isnan isinf isfinite"
).split()


def make(*shape, dtype=fl.complex128, seed=0):
    fl.manual_seed(seed)
    return fl.complex(fl.randn(shape, dtype=fl.float64), fl.randn(shape, dtype=fl.float64)).to(dtype)


def close(got, want, tolerance=None):
    assert got.is_cuda and got.dtype == want.dtype and got.shape == want.shape
    wide = want.dtype in (fl.complex128, fl.float64)
    tolerance = tolerance or (1e-10 if wide else 2e-4)
    assert fl.allclose(got.cpu(), want, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions(name, dtype):
    x = make(7, 5, dtype=dtype)
    for t in (x, x.t(), x[::2, 1:]):
        found, expected = getattr(fl, name)(t.cuda()), getattr(fl, name)(t)
        assert (found.cpu() == expected).all() if expected.dtype is fl.bool else True
        if expected.dtype is not fl.bool:
            close(found, expected)


@pytest.mark.parametrize("name", [n for n in UNARY if not n.startswith("is")])
def test_functions_on_axes_and_near_zero(name):
    parts = (0.0, 1.0, -1.0, 0.5, -2.0, 1e-6, -3e-7, 2e-12, 30.0)
    points = [complex(a, b) for a, b in itertools.product(parts, parts) if a or b]
    x = fl.tensor(points, dtype=fl.complex128)
    found, expected = getattr(fl, name)(x.cuda()).cpu(), getattr(fl, name)(x)
    if expected.is_complex():
        found, expected = fl.view_as_real(found), fl.view_as_real(expected)
    # log1p loses digits where |1 + z| is close to 1, on the CPU as well.
    assert fl.allclose(found, expected, rtol=1e-8, atol=1e-15 if name == "log1p" else 1e-18, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arithmetic(dtype):
    a, b = make(4, 5, dtype=dtype), make(5, dtype=dtype, seed=1)
    real = fl.rand(4, 5).to(a.real.dtype)
    for f in (
        lambda x, y, r: x + y,
        lambda x, y, r: x - 2j * y,
        lambda x, y, r: x * r,
        lambda x, y, r: x / y,
        lambda x, y, r: 1 / x,
        lambda x, y, r: x**y,
        lambda x, y, r: x**2,
        lambda x, y, r: fl.add(x, y, alpha=1 + 2j),
        lambda x, y, r: fl.addcmul(x, x, y, value=0.5j),
        lambda x, y, r: fl.where(r > 0.5, x, y),
        lambda x, y, r: fl.lerp(x, x * 2, 0.25),
        lambda x, y, r: x.real * y.imag,
        lambda x, y, r: fl.polar(r, r * 2),
        lambda x, y, r: fl.vdot(y, y),
        lambda x, y, r: x.conj() @ y,
        lambda x, y, r: x @ x.t(),
        lambda x, y, r: fl.bmm(x.unsqueeze(1), x.unsqueeze(2)),
        lambda x, y, r: x[:, :0] @ x[:0],
        lambda x, y, r: x.clone().mul_(1j),
    ):
        close(f(a.cuda(), b.cuda(), real.cuda()), f(a, b, real))
    assert fl.equal((a.cuda() == a.cuda()).cpu(), a == a)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3,), (6, 7), (2, 300, 5), (40, 1000)], ids=str)
def test_reductions_and_scans(shape, dtype):
    x = make(*shape, dtype=dtype)
    for dim in (None, 0, -1):
        kwargs = {} if dim is None else {"dim": dim}
        for name in ("sum", "mean"):
            close(getattr(fl, name)(x.cuda(), **kwargs), getattr(fl, name)(x, **kwargs))
        for order in (0, 1, 2, 3, float("inf"), -float("inf")):
            close(fl.linalg.vector_norm(x.cuda(), order, dim), fl.linalg.vector_norm(x, order, dim))
        assert fl.count_nonzero(x.cuda()).item() == x.numel()
    unit = x / x.abs()
    close(fl.prod(unit.cuda(), -1), fl.prod(unit, -1))
    close(fl.cumsum(x.cuda(), 0), fl.cumsum(x, 0))
    close(fl.cumprod(unit.cuda(), -1), fl.cumprod(unit, -1))
    at = fl.zeros(shape[0], dtype=fl.int64)
    close(fl.index_add(x.cuda(), 0, at.cuda(), x.cuda()), fl.index_add(x, 0, at, x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients(dtype):
    x = make(3, 4, dtype=dtype)

    def gradient(t):
        t = t.detach().requires_grad_()
        (fl.view_as_real(t.exp() * t.conj() + fl.log(t) / 2).square().sum() + t.abs().sum()).backward()
        return t.grad

    close(gradient(x.cuda()), gradient(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_fourier_transforms(dtype, norm):
    x = make(6, 5, 8, dtype=dtype)
    layouts = (x, x.transpose(0, 2), x[:, ::2])
    for t, dim in itertools.product(layouts, (0, 1, -1)):
        for name in ("fft", "ifft", "irfft", "hfft"):
            f = getattr(fl.fft, name)
            close(f(t.cuda(), dim=dim, norm=norm), f(t, dim=dim, norm=norm))
            close(f(t.cuda(), 7, dim, norm), f(t, 7, dim, norm))
        for name in ("rfft", "ihfft", "fft"):
            f, real = getattr(fl.fft, name), t.real
            close(f(real.cuda(), dim=dim, norm=norm), f(real, dim=dim, norm=norm))
    for dims in ((0, 1), (2, 0), (0, 1, 2), (1,)):
        for name in ("fftn", "ifftn", "irfftn", "hfftn"):
            f = getattr(fl.fft, name)
            close(f(x.cuda(), dim=dims, norm=norm), f(x, dim=dims, norm=norm))
        for name in ("rfftn", "ihfftn"):
            f = getattr(fl.fft, name)
            close(f(x.real.cuda(), dim=dims, norm=norm), f(x.real, dim=dims, norm=norm))


def test_transforms_of_many_dimensions_and_of_length_one():
    x = make(2, 3, 4, 2, 3)
    close(fl.fft.fftn(x.cuda()), fl.fft.fftn(x))
    close(fl.fft.irfftn(fl.fft.rfftn(x.real.cuda()), s=x.shape), x.real)
    close(fl.fft.fft(x[..., :1].cuda()), fl.fft.fft(x[..., :1]))
    line = fl.randn(33)
    close(fl.fft.rfft(line.cuda()[1:]), fl.fft.rfft(line[1:]))


def test_spectrograms_and_back():
    wave = fl.randn(2, 400)
    window = fl.hann_window(64)
    spectrum = fl.stft(wave.cuda(), 64, 16, window=window.cuda(), return_complex=True)
    close(spectrum, fl.stft(wave, 64, 16, window=window, return_complex=True))
    close(fl.istft(spectrum, 64, 16, window=window.cuda(), length=400), wave)
