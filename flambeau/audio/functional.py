"""Functions over waveforms (..., time) and spectrograms (..., frequency, time)."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F

# ---------------------------------------------------------------- spectrograms


def _frame_factor(normalized: bool | str, window: Tensor) -> Any:
    """By what a spectrum is divided after the transform."""
    return window.pow(2.0).sum().sqrt() if normalized in (True, "window") else None


def spectrogram(
    waveform: Tensor,
    pad: int,
    window: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    power: float | None,
    normalized: bool | str,
    center: bool = True,
    pad_mode: str = "reflect",
    onesided: bool = True,
    return_complex: bool | None = None,
) -> Tensor:
    """Magnitudes to a power of short Fourier transforms, or the complex spectra with power=None."""
    waveform = F.pad(waveform, (pad, pad), "constant") if pad > 0 else waveform
    lead = waveform.shape[:-1]
    spectra = flambeau.stft(
        waveform.reshape(-1, waveform.shape[-1]), n_fft, hop_length, win_length, window, center, pad_mode,
        normalized == "frame_length", onesided, return_complex=True,
    )  # fmt: skip
    spectra = spectra.reshape(*lead, *spectra.shape[-2:])
    factor = _frame_factor(normalized, window)
    spectra = spectra if factor is None else spectra / factor
    if power is None:
        return spectra
    return spectra.abs() if power == 1.0 else spectra.abs().pow(power)


def inverse_spectrogram(
    spectrogram: Tensor,
    length: int | None,
    pad: int,
    window: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    normalized: bool | str,
    center: bool = True,
    pad_mode: str = "reflect",
    onesided: bool = True,
) -> Tensor:
    """The waveform of complex spectra."""
    if not spectrogram.is_complex():
        raise ValueError(f"[inverse_spectrogram] expected a complex spectrogram, got {spectrogram.dtype}")
    factor = _frame_factor(normalized, window)
    spectra = spectrogram if factor is None else spectrogram * factor
    lead = spectra.shape[:-2]
    waveform = flambeau.istft(
        spectra.reshape(-1, *spectra.shape[-2:]), n_fft, hop_length, win_length, window, center,
        normalized == "frame_length", onesided, length + 2 * pad if length is not None else None, return_complex=False,
    )  # fmt: skip
    if length is not None and pad > 0:
        waveform = waveform[:, pad:-pad]
    return waveform.reshape(*lead, waveform.shape[-1])


def griffinlim(
    specgram: Tensor,
    window: Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    power: float,
    n_iter: int,
    momentum: float,
    length: int | None,
    rand_init: bool,
) -> Tensor:
    """A waveform whose spectrogram is close to one without phases."""
    if not 0 <= momentum < 1:
        raise ValueError(f"[griffinlim] expected a momentum in [0, 1), got {momentum}")
    momentum = momentum / (1 + momentum)
    lead = specgram.shape[:-2]
    magnitudes = specgram.reshape(-1, *specgram.shape[-2:]).pow(1 / power)
    kind = flambeau.complex128 if magnitudes.dtype is flambeau.float64 else flambeau.complex64
    make = flambeau.rand if rand_init else flambeau.ones
    angles = make(magnitudes.shape, dtype=kind, device=magnitudes.device)
    previous: Any = 0.0
    size: dict[str, Any] = {"n_fft": n_fft, "hop_length": hop_length, "win_length": win_length, "window": window}
    for _ in range(n_iter):
        inverse = flambeau.istft(magnitudes * angles, length=length, **size)
        rebuilt = flambeau.stft(inverse, center=True, pad_mode="reflect", normalized=False, onesided=True, return_complex=True, **size)  # fmt: skip
        angles = rebuilt - previous * momentum if momentum else rebuilt
        angles = angles / angles.abs().add(1e-16)
        previous = rebuilt
    waveform = flambeau.istft(magnitudes * angles, length=length, **size)
    return waveform.reshape(*lead, waveform.shape[-1])


def amplitude_to_DB(
    x: Tensor, multiplier: float, amin: float, db_multiplier: float, top_db: float | None = None
) -> Tensor:
    """Decibels; `top_db` limits how far below the loudest of each item they go."""
    decibels = multiplier * flambeau.log10(flambeau.clamp(x, min=amin)) - multiplier * db_multiplier
    if top_db is None:
        return decibels
    shape = decibels.shape
    channels = shape[-3] if decibels.dim() > 2 else 1
    packed = decibels.reshape(-1, channels, shape[-2], shape[-1])
    floor = (packed.amax(dim=(-3, -2, -1)) - top_db).view(-1, 1, 1, 1)
    return flambeau.max(packed, floor).reshape(shape)


def DB_to_amplitude(x: Tensor, ref: float, power: float) -> Tensor:
    """The inverse of `amplitude_to_DB`."""
    return ref * flambeau.pow(flambeau.pow(10.0, 0.1 * x), power)


# ---------------------------------------------------------------- scales


def _to_mel(frequency: float, scale: str) -> float:
    if scale == "htk":
        return 2595.0 * math.log10(1.0 + frequency / 700.0)
    if frequency < 1000.0:
        return frequency / (200.0 / 3)
    return 15.0 + math.log(frequency / 1000.0) / (math.log(6.4) / 27.0)


def _from_mel(mels: Tensor, scale: str) -> Tensor:
    if scale == "htk":
        return 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    frequencies = (200.0 / 3) * mels
    return flambeau.where(mels >= 15.0, 1000.0 * flambeau.exp((math.log(6.4) / 27.0) * (mels - 15.0)), frequencies)


def _triangles(all_frequencies: Tensor, points: Tensor) -> Tensor:
    """Filters (frequencies, filters): up from a point to the next, down to the one after."""
    width = points[1:] - points[:-1]
    slopes = points.unsqueeze(0) - all_frequencies.unsqueeze(1)
    down, up = -slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]
    return flambeau.max(flambeau.zeros(1), flambeau.min(down, up))


def melscale_fbanks(
    n_freqs: int,
    f_min: float,
    f_max: float,
    n_mels: int,
    sample_rate: int,
    norm: str | None = None,
    mel_scale: str = "htk",
) -> Tensor:
    """Triangular filters that are equally wide on the mel scale; norm="slaney" makes their areas equal."""
    if norm not in (None, "slaney"):
        raise ValueError(f"[melscale_fbanks] expected norm None or 'slaney', got {norm!r}")
    if mel_scale not in ("htk", "slaney"):
        raise ValueError(f"[melscale_fbanks] expected mel_scale 'htk' or 'slaney', got {mel_scale!r}")
    frequencies = flambeau.linspace(0, sample_rate // 2, n_freqs)
    mels = flambeau.linspace(_to_mel(f_min, mel_scale), _to_mel(f_max, mel_scale), n_mels + 2)
    points = _from_mel(mels, mel_scale)
    filters = _triangles(frequencies, points)
    return filters if norm is None else filters * (2.0 / (points[2 : n_mels + 2] - points[:n_mels])).unsqueeze(0)


def linear_fbanks(n_freqs: int, f_min: float, f_max: float, n_filter: int, sample_rate: int) -> Tensor:
    """Triangular filters that are equally wide."""
    frequencies = flambeau.linspace(0, sample_rate // 2, n_freqs)
    return _triangles(frequencies, flambeau.linspace(f_min, f_max, n_filter + 2))


def create_dct(n_mfcc: int, n_mels: int, norm: str | None) -> Tensor:
    """The cosine transform (n_mels, n_mfcc); norm="ortho" makes it orthogonal."""
    if norm not in (None, "ortho"):
        raise ValueError(f"[create_dct] expected norm None or 'ortho', got {norm!r}")
    places, order = flambeau.arange(float(n_mels)), flambeau.arange(float(n_mfcc)).unsqueeze(1)
    dct = flambeau.cos(math.pi / float(n_mels) * (places + 0.5) * order)
    if norm is None:
        return (dct * 2.0).t()
    dct[0] *= 1.0 / math.sqrt(2.0)
    return (dct * math.sqrt(2.0 / float(n_mels))).t()


# ---------------------------------------------------------------- waveforms


def mu_law_encoding(x: Tensor, quantization_channels: int) -> Tensor:
    """Numbers from -1 to 1 as integers on a logarithmic scale."""
    mu = quantization_channels - 1.0
    x = x if x.is_floating_point() else x.to(flambeau.float32)
    compressed = flambeau.sign(x) * flambeau.log1p(mu * flambeau.abs(x)) / math.log1p(mu)
    return ((compressed + 1) / 2 * mu + 0.5).to(flambeau.int64)


def mu_law_decoding(x_mu: Tensor, quantization_channels: int) -> Tensor:
    """The inverse of `mu_law_encoding`."""
    mu = quantization_channels - 1.0
    x = x_mu if x_mu.is_floating_point() else x_mu.to(flambeau.float32)
    x = x / mu * 2 - 1.0
    return flambeau.sign(x) * (flambeau.exp(flambeau.abs(x) * math.log1p(mu)) - 1.0) / mu


def _sinc_kernel(old: int, new: int, width: int, rolloff: float, method: str, beta: float | None) -> tuple[Tensor, int]:
    """A windowed sinc for each of the `new` phases."""
    if method not in ("sinc_interp_hann", "sinc_interp_kaiser"):
        raise ValueError(f"[resample] expected 'sinc_interp_hann' or 'sinc_interp_kaiser', got {method!r}")
    base = min(old, new) * rolloff
    half = math.ceil(width * old / base)
    taps = flambeau.arange(-half, half + old, dtype=flambeau.float64)[None, None] / old
    t = flambeau.arange(0, -new, -1, dtype=flambeau.float64)[:, None, None] / new + taps
    t = (t * base).clamp(-width, width)
    if method == "sinc_interp_hann":
        window = flambeau.cos(t * math.pi / width / 2) ** 2
    else:
        beta = 14.769656459379492 if beta is None else beta
        window = flambeau.i0(beta * flambeau.sqrt(1 - (t / width) ** 2)) / flambeau.i0(flambeau.tensor(float(beta)))
    t = t * math.pi
    kernel = flambeau.where(t == 0, flambeau.ones_like(t), t.sin() / t) * window * (base / old)
    return kernel, half


def resample(
    waveform: Tensor,
    orig_freq: int,
    new_freq: int,
    lowpass_filter_width: int = 6,
    rolloff: float = 0.99,
    resampling_method: str = "sinc_interp_hann",
    beta: float | None = None,
) -> Tensor:
    """The waveform at another rate, by band-limited interpolation."""
    if orig_freq <= 0 or new_freq <= 0:
        raise ValueError(f"[resample] expected positive frequencies, got {orig_freq} and {new_freq}")
    if orig_freq == new_freq:
        return waveform
    common = math.gcd(int(orig_freq), int(new_freq))
    old, new = int(orig_freq) // common, int(new_freq) // common
    kernel, half = _sinc_kernel(old, new, lowpass_filter_width, rolloff, resampling_method, beta)
    return _apply_kernel(waveform, kernel.to(waveform), half, old, new)


def _apply_kernel(waveform: Tensor, kernel: Tensor, half: int, old: int, new: int) -> Tensor:
    if not waveform.is_floating_point():
        raise TypeError(f"[resample] expected a floating point waveform, got {waveform.dtype}")
    lead, length = waveform.shape[:-1], waveform.shape[-1]
    rows = F.pad(waveform.reshape(-1, length), (half, half + old))
    phases = F.conv1d(rows[:, None], kernel, stride=old)
    result = phases.transpose(1, 2).reshape(rows.shape[0], -1)
    return result[..., : math.ceil(new * length / old)].reshape(*lead, -1)


def compute_deltas(specgram: Tensor, win_length: int = 5, mode: str = "replicate") -> Tensor:
    """Slopes along time, by least squares over a window."""
    if win_length < 3:
        raise ValueError(f"[compute_deltas] expected a window of at least 3, got {win_length}")
    shape, n = specgram.shape, (win_length - 1) // 2
    rows = F.pad(specgram.reshape(1, -1, shape[-1]), (n, n), mode=mode)
    kernel = flambeau.arange(-n, n + 1, 1, dtype=specgram.dtype, device=specgram.device).repeat(rows.shape[1], 1, 1)
    return (F.conv1d(rows, kernel, groups=rows.shape[1]) / (n * (n + 1) * (2 * n + 1) / 3)).reshape(shape)


def preemphasis(waveform: Tensor, coeff: float = 0.97) -> Tensor:
    """`y[t] = x[t] - coeff * x[t - 1]`."""
    return flambeau.cat((waveform[..., :1], waveform[..., 1:] - coeff * waveform[..., :-1]), -1)


def convolve(x: Tensor, y: Tensor, mode: str = "full") -> Tensor:
    """The convolution along the last dimension."""
    return _convolved("convolve", x, y, mode)


fftconvolve = convolve


def _convolved(op: str, x: Tensor, y: Tensor, mode: str) -> Tensor:
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"[{op}] expected full, valid or same, got {mode!r}")
    length = x.shape[-1] + y.shape[-1] - 1
    full = flambeau.fft.irfft(flambeau.fft.rfft(x, n=length) * flambeau.fft.rfft(y, n=length), n=length)
    wanted = length
    if mode == "valid":
        wanted = max(x.shape[-1], y.shape[-1]) - min(x.shape[-1], y.shape[-1]) + 1
    elif mode == "same":
        wanted = x.shape[-1]
    start = (length - wanted) // 2
    return full[..., start : start + wanted]


def add_noise(waveform: Tensor, noise: Tensor, snr: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Noise scaled so that the ratio of energies is `snr` decibels, added."""
    if lengths is not None:
        mask = flambeau.arange(waveform.shape[-1], device=lengths.device) < lengths.unsqueeze(-1)
        waveform_part, noise_part = waveform * mask, noise * mask
    else:
        waveform_part, noise_part = waveform, noise
    ratio = (
        flambeau.linalg.vector_norm(waveform_part, dim=-1) ** 2 / flambeau.linalg.vector_norm(noise_part, dim=-1) ** 2
    )
    scale = 10 ** ((10 * flambeau.log10(ratio) - snr) / 20.0)
    return waveform + scale.unsqueeze(-1) * noise


def mask_along_axis(specgram: Tensor, mask_param: int, mask_value: float, axis: int, p: float = 1.0) -> Tensor:
    """A random band of up to `mask_param` columns or rows, filled."""
    size = specgram.shape[axis]
    most = min(mask_param, int(size * p))
    if most < 1:
        return specgram
    value = float(flambeau.rand(1)) * most
    start = int(float(flambeau.rand(1)) * (size - value))
    places = flambeau.arange(size, device=specgram.device)
    shape = [1] * specgram.dim()
    shape[axis] = size
    return specgram.masked_fill(((places >= start) & (places < start + int(value))).reshape(shape), mask_value)
