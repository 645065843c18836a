"""Discrete Fourier transforms. Three kernels (complex to complex, real to complex and back) do the work; the functions
here trim or pad the input, choose the scale and name the dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, node, tag, vjp
from flambeau.ops.values import all_values

native("_fft_c2c(Tensor self, int[] dim, float scale, bool forward) -> Tensor")
native("_fft_r2c(Tensor self, int[] dim, float scale, bool forward, bool onesided) -> Tensor")
native("_fft_c2r(Tensor self, int[] dim, float scale, bool forward, int last_size) -> Tensor")


@vjp("_fft_c2c")
def c2c_vjp(g: fl.Tensor, dim: list[int], scale: float, forward: bool) -> fl.Tensor:
    return fl._ops._fft_c2c(g, dim, scale, not forward)


@vjp("_fft_r2c")
def r2c_vjp(
    g: fl.Tensor, self_sizes: fl.Size, dim: list[int], scale: float, forward: bool, onesided: bool
) -> fl.Tensor:
    if onesided:  # the half that was left out has no gradient
        last = dim[-1] % len(self_sizes)
        missing = self_sizes[last] - g.shape[last]
        g = fl.constant_pad_nd(g, [0, 0] * (len(self_sizes) - 1 - last) + [0, missing])
    return fl._ops._fft_c2c(g, dim, scale, not forward).real


@vjp("_fft_c2r")
def c2r_vjp(
    g: fl.Tensor, self_sizes: fl.Size, dim: list[int], scale: float, forward: bool, last_size: int
) -> fl.Tensor:
    half_spectrum = fl._ops._fft_r2c(g, dim, scale, not forward, True)
    # Each frequency but the first (and the middle one of an even length) stands for two.
    last = dim[-1] % len(self_sizes)
    twice = fl.ones(half_spectrum.shape[last], dtype=g.dtype, device=g.device)
    twice[1 : (last_size - 1) // 2 + 1] = 2
    return half_spectrum * twice.reshape([-1] + [1] * (len(self_sizes) - 1 - last))


TWO = "Tensor self, int[1]? s=None, int[1] dim=[-2, -1], str? norm=None"
MANY = "Tensor self, int[1]? s=None, int[1]? dim=None, str? norm=None"


# ---------------------------------------------------------------- arguments


def _scale(op: str, norm: str | None, count: int, forward: bool) -> float:
    """Factor of a transform over `count` points: the norm says which direction is divided."""
    if count < 1:
        raise RuntimeError(f"[{op}] expected at least one data point, got {count}")
    if norm == "ortho":
        return 1.0 / math.sqrt(count)
    if norm is None or norm == "backward":
        return 1.0 if forward else 1.0 / count
    if norm == "forward":
        return 1.0 / count if forward else 1.0
    raise RuntimeError(f"[{op}] expected a norm among 'forward', 'backward' and 'ortho', got {norm!r}")


def _promote(op: str, self: fl.Tensor, to_complex: bool = False) -> fl.Tensor:
    dtype = self.dtype
    if dtype in (fl.float16, fl.bfloat16):
        raise RuntimeError(f"[{op}] expected float32, float64 or complex on the CPU, got {dtype}")
    if not dtype.is_floating_point and not dtype.is_complex:
        dtype = fl.get_default_dtype()
    if to_complex and not dtype.is_complex:
        dtype = fl.complex128 if dtype == fl.float64 else fl.complex64
    return self if dtype == self.dtype else self.to(dtype)


def _wrap(op: str, d: int, ndim: int) -> int:
    if not -ndim <= d < ndim:
        raise IndexError(
            f"[{op}] expected a dimension in the range [{-ndim}, {ndim - 1}], got {d}: Dimension out of range"
        )
    return d % ndim


def _resize(op: str, self: fl.Tensor, sizes: Sequence[int], dims: Sequence[int]) -> fl.Tensor:
    """Trims the dimensions that are too long and pads the others with zeros at the end."""
    padding = None
    for n, d in zip(sizes, dims):
        have = self.size(d)
        if n < 1:
            raise RuntimeError(f"[{op}] expected at least one data point, got {n}")
        if n < have:
            self = self.narrow(d, 0, n)
        elif n > have:
            if padding is None:
                padding = [0] * (2 * self.dim())
            padding[2 * (self.dim() - 1 - d) + 1] = n - have
    return self if padding is None else fl.nn.functional.pad(self, padding)


def _many(op: str, self: fl.Tensor, s: Sequence[int] | None, dim: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Sizes and wrapped dimensions of a transform over several dimensions."""
    if s is not None and dim is not None and len(s) != len(dim):
        raise RuntimeError(f"[{op}] expected s and dim of one length, got {tuple(s)} and {tuple(dim)}")
    if s is not None and len(s) > self.dim():
        raise RuntimeError(f"[{op}] expected at most {self.dim()} sizes, got {tuple(s)}")
    if dim is not None:
        dims = [_wrap(op, d, self.dim()) for d in dim]
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"[{op}] expected each dimension once, got {tuple(dim)}")
    elif s is not None:
        dims = list(range(self.dim() - len(s), self.dim()))
    else:
        dims = list(range(self.dim()))
    if s is None:
        sizes = [self.size(d) for d in dims]
    else:
        sizes = [self.size(d) if n == -1 else n for n, d in zip(s, dims)]
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"[{op}] expected at least one data point, got {n}")
    return sizes, dims


# ---------------------------------------------------------------- the transforms


def complex_transform(
    op: str, self: fl.Tensor, sizes: Sequence[int], dims: Sequence[int], norm: str | None, forward: bool
) -> fl.Tensor:
    scale = _scale(op, norm, math.prod(sizes), forward)
    self = _promote(op, self)
    self = _resize(op, self, sizes, dims)
    if not dims:
        return _promote(op, self, to_complex=True).clone()
    if self.is_complex():
        return fl._ops._fft_c2c(self, dims, scale, forward)
    return fl._ops._fft_r2c(self, dims, scale, forward, False)


def real_transform(
    op: str, self: fl.Tensor, sizes: Sequence[int], dims: Sequence[int], norm: str | None, forward: bool
) -> fl.Tensor:
    """Real input, one-sided output."""
    if self.is_complex():
        raise RuntimeError(f"[{op}] expected a real tensor, got {self.dtype}")
    if not dims:
        raise RuntimeError(f"[{op}] expected at least one dimension to transform, got none")
    scale = _scale(op, norm, math.prod(sizes), forward)
    self = _resize(op, _promote(op, self), sizes, dims)
    return fl._ops._fft_r2c(self, dims, scale, forward, True)


def hermitian_transform(
    op: str,
    self: fl.Tensor,
    sizes: Sequence[int],
    dims: Sequence[int],
    norm: str | None,
    forward: bool,
) -> fl.Tensor:
    """One-sided Hermitian input, real output; the last of `sizes` counts real elements."""
    if not dims:
        raise RuntimeError(f"[{op}] expected at least one dimension to transform, got none")
    last = sizes[-1]
    if last < 1:
        raise RuntimeError(f"[{op}] expected at least one data point, got {last}")
    scale = _scale(op, norm, math.prod(sizes), forward)
    self = _resize(op, _promote(op, self, to_complex=True), [*sizes[:-1], last // 2 + 1], dims)
    return fl._ops._fft_c2r(self, dims, scale, forward, last)


def _length(self: fl.Tensor, n: int | None, d: int) -> int:
    return self.size(d) if n is None else n


def _spectrum_length(self: fl.Tensor, n: int | None, d: int) -> int:
    return 2 * (self.size(d) - 1) if n is None else n


# ---------------------------------------------------------------- one dimension


@composite("fft_fft", out=True)
def fft(self: fl.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> fl.Tensor:
    d = _wrap("fft.fft", dim, self.dim())
    return complex_transform("fft.fft", self, [_length(self, n, d)], [d], norm, True)


@composite("fft_ifft", out=True)
def ifft(self: fl.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> fl.Tensor:
    d = _wrap("fft.ifft", dim, self.dim())
    return complex_transform("fft.ifft", self, [_length(self, n, d)], [d], norm, False)


@composite("fft_rfft", out=True)
def rfft(self: fl.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> fl.Tensor:
    d = _wrap("fft.rfft", dim, self.dim())
    return real_transform("fft.rfft", self, [_length(self, n, d)], [d], norm, True)


@composite("fft_irfft", out=True)
def irfft(self: fl.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> fl.Tensor:
    d = _wrap("fft.irfft", dim, self.dim())
    return hermitian_transform("fft.irfft", self, [_spectrum_length(self, n, d)], [d], norm, False)


@composite("fft_hfft", out=True)
def hfft(self: fl.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> fl.Tensor:
    d = _wrap("fft.hfft", dim, self.dim())
    return hermitian_transform("fft.hfft", self, [_spectrum_length(self, n, d)], [d], norm, True)


@composite("fft_ihfft", out=True)
def ihfft(self: fl.Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> fl.Tensor:
    d = _wrap("fft.ihfft", dim, self.dim())
    return real_transform("fft.ihfft", self, [_length(self, n, d)], [d], norm, False)


# ---------------------------------------------------------------- several dimensions


@composite(f"fft_fft2({TWO}) -> Tensor", out=True)
@composite(f"fft_fftn({MANY}) -> Tensor", out=True)
def fftn(self: fl.Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> fl.Tensor:
    return complex_transform("fft.fftn", self, *_many("fft.fftn", self, s, dim), norm, True)


@composite(f"fft_ifft2({TWO}) -> Tensor", out=True)
@composite(f"fft_ifftn({MANY}) -> Tensor", out=True)
def ifftn(self: fl.Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> fl.Tensor:
    return complex_transform("fft.ifftn", self, *_many("fft.ifftn", self, s, dim), norm, False)


@composite(f"fft_rfft2({TWO}) -> Tensor", out=True)
@composite(f"fft_rfftn({MANY}) -> Tensor", out=True)
def rfftn(self: fl.Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> fl.Tensor:
    return real_transform("fft.rfftn", self, *_many("fft.rfftn", self, s, dim), norm, True)


def _half_spectrum_sizes(
    op: str, self: fl.Tensor, s: Sequence[int] | None, dim: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    sizes, dims = _many(op, self, s, dim)
    if dims and (s is None or s[-1] == -1):
        sizes[-1] = 2 * (self.size(dims[-1]) - 1)
    return sizes, dims


@composite(f"fft_irfft2({TWO}) -> Tensor", out=True)
@composite(f"fft_irfftn({MANY}) -> Tensor", out=True)
def irfftn(self: fl.Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> fl.Tensor:
    return hermitian_transform("fft.irfftn", self, *_half_spectrum_sizes("fft.irfftn", self, s, dim), norm, False)


@composite(f"fft_hfft2({TWO}) -> Tensor", out=True)
@composite(f"fft_hfftn({MANY}) -> Tensor", out=True)
def hfftn(self: fl.Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> fl.Tensor:
    return hermitian_transform("fft.hfftn", self, *_half_spectrum_sizes("fft.hfftn", self, s, dim), norm, True)


@composite(f"fft_ihfft2({TWO}) -> Tensor", out=True)
@composite(f"fft_ihfftn({MANY}) -> Tensor", out=True)
def ihfftn(self: fl.Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> fl.Tensor:
    return real_transform("fft.ihfftn", self, *_many("fft.ihfftn", self, s, dim), norm, False)


# ---------------------------------------------------------------- frequencies and shifts

OPTIONS = "dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=None, bool requires_grad=False"


@composite(f"fft_fftfreq(int n, float d=1.0, *, {OPTIONS}) -> Tensor", out=True)
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **rest: Any) -> fl.Tensor:
    positive = (n + 1) // 2
    index = fl.arange(n, dtype=fl.int64, device=device)
    index = fl.where(fl.lt(index, positive), index, fl.sub(index, n))
    return _frequencies("fft.fftfreq", index, n, d, dtype, **rest)


@composite(f"fft_rfftfreq(int n, float d=1.0, *, {OPTIONS}) -> Tensor", out=True)
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **rest: Any) -> fl.Tensor:
    return _frequencies("fft.rfftfreq", fl.arange(n // 2 + 1, dtype=fl.int64, device=device), n, d, dtype, **rest)


def _frequencies(
    op: str, index: fl.Tensor, n: int, d: float, dtype: Any, requires_grad: bool = False, **_: Any
) -> fl.Tensor:
    dtype = fl.get_default_dtype() if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"[{op}] expected a floating or complex dtype, got {dtype}")
    # A spacing of zero gives infinite frequencies, as a division of floats does.
    result = fl.mul(index.to(dtype), 1.0 / (n * d) if n * d else math.copysign(math.inf, d) if n else 0.0)
    return result.requires_grad_() if requires_grad else result


@composite("fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor")
def fftshift(self: fl.Tensor, dim: Sequence[int] | None = None) -> fl.Tensor:
    dims = list(range(self.dim())) if dim is None else list(dim)
    return fl.roll(self, [self.size(d) // 2 for d in dims], dims) if dims else self.clone()


@composite("fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor")
def ifftshift(self: fl.Tensor, dim: Sequence[int] | None = None) -> fl.Tensor:
    dims = list(range(self.dim())) if dim is None else list(dim)
    return fl.roll(self, [(self.size(d) + 1) // 2 for d in dims], dims) if dims else self.clone()


# ---------------------------------------------------------------- short-time transforms

native("_overlap_add(Tensor self, int hop) -> Tensor")


@vjp("_overlap_add")
def overlap_add_vjp(g: fl.Tensor, self_sizes: fl.Size, hop: int) -> fl.Tensor:
    return g.unfold(-1, self_sizes[-1], hop)


def _ones(n: int, like: fl.Tensor) -> fl.Tensor:
    """A rectangular window in the precision of a signal or spectrum."""
    dtype = fl.float64 if like.dtype in (fl.float64, fl.complex128) else fl.float32
    return fl.ones(n, dtype=dtype, device=like.device)


def _window(op: str, window: fl.Tensor | None, win_length: int, n_fft: int, like: fl.Tensor) -> fl.Tensor | None:
    """The window centred in a frame of n_fft samples."""
    if window is not None and (window.dim() != 1 or window.size(0) != win_length):
        raise RuntimeError(f"[{op}] expected a window of {win_length} elements, got {tuple(window.shape)}")
    if win_length == n_fft:
        return window
    before = (n_fft - win_length) // 2
    window = _ones(win_length, like) if window is None else window
    return fl.nn.functional.pad(window, [before, n_fft - win_length - before])


@composite()
def stft(
    self: fl.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: fl.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> fl.Tensor:
    op = "stft"
    if center and align_to_window is not None:
        raise RuntimeError("[stft] expected align_to_window only with center=False, got center=True")
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    complex_input = self.is_complex() or (window is not None and window.is_complex())
    if return_complex is None:
        if not complex_input:
            raise RuntimeError("[stft] expected return_complex to be given for real input, got None")
        return_complex = True
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(f"[stft] expected a floating or complex tensor, got {self.dtype}")
    if self.dim() not in (1, 2):
        raise RuntimeError(f"[stft] expected a signal or a batch of signals, got {tuple(self.shape)}")
    if hop <= 0:
        raise RuntimeError(f"[stft] expected a positive hop_length, got {hop}")
    if not 0 < width <= n_fft:
        raise RuntimeError(f"[stft] expected a win_length between 1 and {n_fft}, got {width}")
    single = self.dim() == 1
    signal = self.unsqueeze(0) if single else self
    if center:
        side = n_fft // 2
        signal = fl.nn.functional.pad(signal.unsqueeze(1), [side, side], mode=pad_mode).squeeze(1)
    length = signal.size(1)
    if not 0 < n_fft <= length:
        raise RuntimeError(f"[stft] expected n_fft between 1 and {length}, got {n_fft}")
    if onesided is None:
        onesided = not complex_input
    if onesided and complex_input:
        raise RuntimeError("[stft] expected onesided=False for a complex input or window, got True")
    if align_to_window and width < n_fft:
        start = (n_fft - width) // 2
        signal = fl.nn.functional.pad(signal, [start, n_fft - width - start])
    full = _window(op, window, width, n_fft, self)
    frames = signal.unfold(-1, n_fft, hop)
    if full is not None:
        frames = fl.mul(frames, full)
    norm = "ortho" if normalized else None
    if frames.is_complex():
        spectrum = complex_transform(op, frames, [n_fft], [2], norm, True)
    elif onesided:
        spectrum = real_transform(op, frames, [n_fft], [2], norm, True)
    else:
        spectrum = complex_transform(op, frames, [n_fft], [2], norm, True)
    spectrum = spectrum.transpose(1, 2)
    if single:
        spectrum = spectrum.squeeze(0)
    return spectrum if return_complex else fl.view_as_real(spectrum)


@composite()
def istft(
    self: fl.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: fl.Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> fl.Tensor:
    op = "istft"
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    if not self.is_complex():
        raise RuntimeError(f"[istft] expected a complex spectrum, got {self.dtype}")
    if self.numel() == 0:
        raise RuntimeError("[istft] expected a spectrum with elements, got none")
    if self.dim() not in (2, 3):
        raise RuntimeError(f"[istft] expected (frequencies, frames) or a batch of them, got {tuple(self.shape)}")
    bins = self.size(-2)
    if onesided is None:
        onesided = bins != n_fft
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(f"[istft] expected {n_fft // 2 + 1 if onesided else n_fft} frequencies, got {bins}")
    if not 0 < hop <= width:
        raise RuntimeError(f"[istft] expected a hop_length between 1 and {width}, got {hop}")
    if not 0 < width <= n_fft:
        raise RuntimeError(f"[istft] expected a win_length between 1 and {n_fft}, got {width}")
    if return_complex and onesided:
        raise RuntimeError("[istft] expected onesided=False for a complex output, got True")
    if not return_complex and window is not None and window.is_complex():
        raise RuntimeError("[istft] expected a real window for a real output, got a complex one")
    single = self.dim() == 2
    spectrum = (self.unsqueeze(0) if single else self).transpose(1, 2)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = complex_transform(op, spectrum, [n_fft], [2], norm, False)
    else:
        half = spectrum if onesided else spectrum.narrow(2, 0, n_fft // 2 + 1)
        frames = hermitian_transform(op, half, [n_fft], [2], norm, False)
    full = _window(op, window, width, n_fft, self)
    if full is None:
        full = _ones(n_fft, self)
    signal = fl._ops._overlap_add(fl.mul(frames, full), hop)
    envelope = fl._ops._overlap_add(fl.square(full).expand(1, frames.size(1), n_fft), hop)
    total = signal.size(1)
    start = n_fft // 2 if center else 0
    if length is not None:
        end = start + length
    else:
        end = total - n_fft // 2 if center else total
    shown = max(min(end, total) - start, 0)
    signal = signal.narrow(1, start, shown)
    envelope = envelope.narrow(1, start, shown)
    if envelope.device.type != "meta" and shown and float(fl.amin(fl.abs(all_values(envelope)))) < 1e-11:
        raise RuntimeError("[istft] expected a window whose overlapping squares are nowhere zero, got one with zeros")
    signal = fl.div(signal, envelope)
    if end > total:
        signal = fl.nn.functional.pad(signal, [0, end - total])
    return signal.squeeze(0) if single else signal


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "_fft_c2r _fft_r2c")
autocast(
    "float32",
    "fft_fft fft_fft2 fft_fftn fft_hfft fft_ifft fft_ifft2 fft_ifftn fft_ihfft fft_irfft fft_irfft2 fft_irfftn "
    "fft_rfft fft_rfft2 fft_rfftn stft",
    on="cpu",
)
node("FftC2CBackward0", "_fft_c2c")
node("FftC2RBackward0", "_fft_c2r")
node("FftR2CBackward0", "_fft_r2c")
