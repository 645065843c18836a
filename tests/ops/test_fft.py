"""Fourier transforms against NumPy: lengths, norms, dimensions, dtypes, and the short-time transform round trip."""

import numpy as np
import pytest

import flambeau as fl

RNG = np.random.default_rng(0)


def real(*shape):
    return RNG.standard_normal(shape)


def cplx(*shape):
    return real(*shape) + 1j * real(*shape)


def check(result, expected, tol=1e-9):
    assert tuple(result.shape) == expected.shape
    np.testing.assert_allclose(result.cpu().numpy(), expected, rtol=tol, atol=tol)


NORMS = [None, "forward", "backward", "ortho"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize("n", [None, 1, 4, 7, 16, 97])
def test_one_dimension(name, norm, n):
    x = real(3, 9) if name in ("rfft", "ihfft") else cplx(3, 9)
    check(getattr(fl.fft, name)(fl.tensor(x), n=n, norm=norm), getattr(np.fft, name)(x, n=n, norm=norm))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_dimension_and_strides(dim):
    x = cplx(4, 6, 5)
    t = fl.tensor(x).permute(2, 0, 1)[1:, ::2]
    check(fl.fft.fft(t, dim=dim), np.fft.fft(x.transpose(2, 0, 1)[1:, ::2], axis=dim))


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_several_dimensions(name, norm):
    x = real(3, 4, 6) if name.startswith("r") else cplx(3, 4, 6)
    check(getattr(fl.fft, name)(fl.tensor(x), norm=norm), getattr(np.fft, name)(x, norm=norm))
    check(getattr(fl.fft, name)(fl.tensor(x), s=(5, 4), dim=(0, 2)), getattr(np.fft, name)(x, s=(5, 4), axes=(0, 2)))


def test_hermitian_transforms_of_several_dimensions_invert_each_other():
    x = real(4, 6)
    half = fl.fft.ihfftn(fl.tensor(x))
    check(fl.fft.hfftn(half, s=(4, 6)), x)
    check(fl.fft.hfft2(fl.fft.ihfft2(fl.tensor(x)), s=(4, 6)), x)


def test_dtypes():
    assert fl.fft.fft(fl.ones(4)).dtype == fl.complex64
    assert fl.fft.fft(fl.ones(4, dtype=fl.float64)).dtype == fl.complex128
    assert fl.fft.rfft(fl.ones(4, dtype=fl.int64)).dtype == fl.complex64
    assert fl.fft.irfft(fl.ones(4, dtype=fl.complex128)).dtype == fl.float64
    assert tuple(fl.fft.rfft2(fl.ones(2, 4, 6, device="meta")).shape) == (2, 4, 4)


def test_frequencies_and_shifts():
    check(fl.fft.fftfreq(7, 0.5, dtype=fl.float64), np.fft.fftfreq(7, 0.5))
    check(fl.fft.rfftfreq(8, 2.0, dtype=fl.float64), np.fft.rfftfreq(8, 2.0))
    x = real(4, 5)
    check(fl.fft.fftshift(fl.tensor(x)), np.fft.fftshift(x))
    check(fl.fft.ifftshift(fl.tensor(x), dim=1), np.fft.ifftshift(x, axes=1))


def test_bad_arguments():
    x = fl.ones(4, 5)
    for call in (
        lambda: fl.fft.fft(x, n=0),
        lambda: fl.fft.fft(x, norm="other"),
        lambda: fl.fft.rfft(x.to(fl.complex64)),
        lambda: fl.fft.fftn(x, s=(3,), dim=(0, 1)),
        lambda: fl.fft.fftn(x, dim=(0, 0)),
        lambda: fl.fft.rfftn(x, dim=()),
        lambda: fl.fft.irfft(x[:, :1]),
        lambda: fl.fft.fft(x.to(fl.bfloat16)),
    ):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError):
        fl.fft.fft(x, dim=2)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
def test_stft_and_back(center, onesided):
    x = real(2, 64)
    window = fl.tensor(np.hanning(18)[1:-1] + 0.1)
    spectrum = fl.stft(fl.tensor(x), 16, 4, window=window, center=center, onesided=onesided, return_complex=True)
    padded = np.pad(x, ((0, 0), (8, 8)), mode="reflect") if center else x
    frames = np.lib.stride_tricks.sliding_window_view(padded, 16, axis=1)[:, ::4] * window.cpu().numpy()
    expected = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    check(spectrum, expected.transpose(0, 2, 1))
    check(fl.istft(spectrum, 16, 4, window=window, center=center, onesided=onesided), x)
