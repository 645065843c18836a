"""`flambeau.audio.functional` as modules, whose windows and filters are buffers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor, nn
from flambeau.audio import functional as AF

__all__ = [
    "MFCC", "AddNoise", "AmplitudeToDB", "ComputeDeltas", "FrequencyMasking", "GriffinLim", "InverseSpectrogram", "LFCC",
    "MelScale", "MelSpectrogram", "MuLawDecoding", "MuLawEncoding", "Preemphasis", "Resample", "Spectrogram", "TimeMasking",
]  # fmt: skip


class _Framed(nn.Module):
    """Length and step of frames, and their window."""

    window: Tensor

    def __init__(
        self, n_fft: int, win_length: int | None, hop_length: int | None, window_fn: Callable[..., Tensor], wkwargs: Any
    ) -> None:
        super().__init__()
        self.n_fft = n_fft
        self.win_length = win_length if win_length is not None else n_fft
        self.hop_length = hop_length if hop_length is not None else self.win_length // 2
        self.register_buffer("window", window_fn(self.win_length, **(wkwargs or {})))

    @property
    def _frames(self) -> tuple[int, int, int]:
        return self.n_fft, self.hop_length, self.win_length


class Spectrogram(_Framed):
    """Magnitudes to a power (2: energy) of short Fourier transforms, (..., n_fft // 2 + 1, frames).

    >>> flambeau.audio.transforms.Spectrogram(n_fft=64)(flambeau.zeros(1, 640)).shape
    torch.Size([1, 33, 21])
    """

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        pad: int = 0,
        window_fn: Callable[..., Tensor] = flambeau.hann_window,
        power: float | None = 2.0,
        normalized: bool | str = False,
        wkwargs: Any = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool = True,
        return_complex: bool | None = None,
    ) -> None:
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.pad, self.power, self.normalized = pad, power, normalized
        self.center, self.pad_mode, self.onesided = center, pad_mode, onesided

    def forward(self, waveform: Tensor) -> Tensor:
        return AF.spectrogram(
            waveform, self.pad, self.window, *self._frames, self.power, self.normalized, self.center, self.pad_mode,
            self.onesided,
        )  # fmt: skip


class InverseSpectrogram(_Framed):
    """The waveform of complex spectra."""

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        pad: int = 0,
        window_fn: Callable[..., Tensor] = flambeau.hann_window,
        normalized: bool | str = False,
        wkwargs: Any = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool = True,
    ) -> None:
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.pad, self.normalized, self.center = pad, normalized, center
        self.pad_mode, self.onesided = pad_mode, onesided

    def forward(self, spectrogram: Tensor, length: int | None = None) -> Tensor:
        return AF.inverse_spectrogram(
            spectrogram, length, self.pad, self.window, *self._frames, self.normalized, self.center, self.pad_mode,
            self.onesided,
        )  # fmt: skip


class GriffinLim(_Framed):
    """A waveform for a spectrogram without phases."""

    def __init__(
        self,
        n_fft: int = 400,
        n_iter: int = 32,
        win_length: int | None = None,
        hop_length: int | None = None,
        window_fn: Callable[..., Tensor] = flambeau.hann_window,
        power: float = 2.0,
        wkwargs: Any = None,
        momentum: float = 0.99,
        length: int | None = None,
        rand_init: bool = True,
    ) -> None:
        super().__init__(n_fft, win_length, hop_length, window_fn, wkwargs)
        self.n_iter, self.power, self.momentum = n_iter, power, momentum
        self.length, self.rand_init = length, rand_init

    def forward(self, specgram: Tensor) -> Tensor:
        return AF.griffinlim(
            specgram, self.window, *self._frames, self.power, self.n_iter, self.momentum, self.length, self.rand_init
        )


class AmplitudeToDB(nn.Module):
    """Decibels of a spectrogram of "power" or "magnitude"."""

    def __init__(self, stype: str = "power", top_db: float | None = None) -> None:
        super().__init__()
        if top_db is not None and top_db < 0:
            raise ValueError(f"[AmplitudeToDB] expected top_db >= 0, got {top_db}")
        self.stype, self.top_db = stype, top_db
        self.multiplier = 10.0 if stype == "power" else 20.0
        self.amin, self.ref_value = 1e-10, 1.0
        self.db_multiplier = math.log10(max(self.amin, self.ref_value))

    def forward(self, x: Tensor) -> Tensor:
        return AF.amplitude_to_DB(x, self.multiplier, self.amin, self.db_multiplier, self.top_db)


class MelScale(nn.Module):
    """Frequencies gathered by triangular filters on the mel scale."""

    fb: Tensor

    def __init__(
        self,
        n_mels: int = 128,
        sample_rate: int = 16000,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_stft: int = 201,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        super().__init__()
        self.n_mels, self.sample_rate, self.f_min = n_mels, sample_rate, f_min
        self.f_max = f_max if f_max is not None else float(sample_rate // 2)
        if self.f_min > self.f_max:
            raise ValueError(f"[MelScale] expected f_min <= f_max, got {f_min} and {self.f_max}")
        filters = AF.melscale_fbanks(n_stft, self.f_min, self.f_max, n_mels, sample_rate, norm, mel_scale)
        self.register_buffer("fb", filters)

    def forward(self, specgram: Tensor) -> Tensor:
        return flambeau.matmul(specgram.transpose(-1, -2), self.fb).transpose(-1, -2)


class MelSpectrogram(nn.Module):
    """A spectrogram on the mel scale, (..., n_mels, frames).

    >>> flambeau.audio.transforms.MelSpectrogram(16000, n_mels=40)(flambeau.zeros(1, 16000)).shape
    torch.Size([1, 40, 81])
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
        pad: int = 0,
        n_mels: int = 128,
        window_fn: Callable[..., Tensor] = flambeau.hann_window,
        power: float = 2.0,
        normalized: bool | str = False,
        wkwargs: Any = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool | None = None,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        super().__init__()
        self.sample_rate, self.n_fft, self.n_mels = sample_rate, n_fft, n_mels
        self.spectrogram = Spectrogram(
            n_fft, win_length, hop_length, pad, window_fn, power, normalized, wkwargs, center, pad_mode, True
        )
        self.mel_scale = MelScale(n_mels, sample_rate, f_min, f_max, n_fft // 2 + 1, norm, mel_scale)

    def forward(self, waveform: Tensor) -> Tensor:
        return self.mel_scale(self.spectrogram(waveform))


class _Cepstrum(nn.Module):
    """The cosine transform of logarithms of filtered energies."""

    dct_mat: Tensor

    def __init__(self, count: int, filters: int, norm: str | None, log: bool) -> None:
        super().__init__()
        if count > filters:
            raise ValueError(f"[{type(self).__name__}] expected at most {filters} coefficients, got {count}")
        self.amplitude_to_DB = AmplitudeToDB("power", 80.0)
        self.register_buffer("dct_mat", AF.create_dct(count, filters, norm))
        self._log = log

    def coefficients(self, energies: Tensor) -> Tensor:
        logarithms = flambeau.log(energies + 1e-6) if self._log else self.amplitude_to_DB(energies)
        return flambeau.matmul(logarithms.transpose(-1, -2), self.dct_mat).transpose(-1, -2)


class MFCC(_Cepstrum):
    """Mel-frequency cepstral coefficients, (..., n_mfcc, frames).

    >>> flambeau.audio.transforms.MFCC()(flambeau.zeros(1, 16000)).shape
    torch.Size([1, 40, 81])
    """

    def __init__(
        self,
        sample_rate: int = 16000,
        n_mfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_mels: bool = False,
        melkwargs: dict[str, Any] | None = None,
    ) -> None:
        if dct_type != 2:
            raise ValueError(f"[MFCC] expected the cosine transform of type 2, got {dct_type}")
        spectrogram = MelSpectrogram(sample_rate=sample_rate, **(melkwargs or {}))
        super().__init__(n_mfcc, spectrogram.n_mels, norm, log_mels)
        self.MelSpectrogram = spectrogram

    def forward(self, waveform: Tensor) -> Tensor:
        return self.coefficients(self.MelSpectrogram(waveform))


class LFCC(_Cepstrum):
    """Cepstral coefficients of linear filters."""

    filter_mat: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        n_filter: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_lfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_lf: bool = False,
        speckwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(n_lfcc, n_filter, norm, log_lf)
        self.Spectrogram = Spectrogram(**(speckwargs or {}))
        top = f_max if f_max is not None else float(sample_rate // 2)
        filters = AF.linear_fbanks(self.Spectrogram.n_fft // 2 + 1, f_min, top, n_filter, sample_rate)
        self.register_buffer("filter_mat", filters)

    def forward(self, waveform: Tensor) -> Tensor:
        spectrogram = self.Spectrogram(waveform)
        return self.coefficients(flambeau.matmul(spectrogram.transpose(-1, -2), self.filter_mat).transpose(-1, -2))


class Resample(nn.Module):
    """Waveforms at another rate; the filter is made once.

    >>> flambeau.audio.transforms.Resample(16000, 8000)(flambeau.zeros(1, 16000)).shape
    torch.Size([1, 8000])
    """

    def __init__(
        self,
        orig_freq: int = 16000,
        new_freq: int = 16000,
        resampling_method: str = "sinc_interp_hann",
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        beta: float | None = None,
        *,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.orig_freq, self.new_freq = orig_freq, new_freq
        self._settings = (lowpass_filter_width, rolloff, resampling_method, beta)
        common = math.gcd(int(orig_freq), int(new_freq))
        self._steps = (int(orig_freq) // common, int(new_freq) // common)
        if orig_freq != new_freq:
            kernel, self._half = AF._sinc_kernel(*self._steps, *self._settings)  # type: ignore[arg-type]
            self.register_buffer("kernel", kernel.to(dtype or flambeau.float32))

    def forward(self, waveform: Tensor) -> Tensor:
        if self.orig_freq == self.new_freq:
            return waveform
        return AF._apply_kernel(waveform, self.kernel.to(waveform.dtype), self._half, *self._steps)


class MuLawEncoding(nn.Module):
    def __init__(self, quantization_channels: int = 256) -> None:
        super().__init__()
        self.quantization_channels = quantization_channels

    def forward(self, x: Tensor) -> Tensor:
        return AF.mu_law_encoding(x, self.quantization_channels)


class MuLawDecoding(MuLawEncoding):
    def forward(self, x: Tensor) -> Tensor:
        return AF.mu_law_decoding(x, self.quantization_channels)


class ComputeDeltas(nn.Module):
    def __init__(self, win_length: int = 5, mode: str = "replicate") -> None:
        super().__init__()
        self.win_length, self.mode = win_length, mode

    def forward(self, specgram: Tensor) -> Tensor:
        return AF.compute_deltas(specgram, self.win_length, self.mode)


class Preemphasis(nn.Module):
    def __init__(self, coeff: float = 0.97) -> None:
        super().__init__()
        self.coeff = coeff

    def forward(self, waveform: Tensor) -> Tensor:
        return AF.preemphasis(waveform, self.coeff)


class AddNoise(nn.Module):
    def forward(self, waveform: Tensor, noise: Tensor, snr: Tensor, lengths: Tensor | None = None) -> Tensor:
        return AF.add_noise(waveform, noise, snr, lengths)


class _AxisMasking(nn.Module):
    """A random band of a spectrogram, filled."""

    axis = -1

    def __init__(self, mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        super().__init__()
        self.mask_param, self.iid_masks, self.p = mask_param, iid_masks, p

    def forward(self, specgram: Tensor, mask_value: float = 0.0) -> Tensor:
        if not self.iid_masks or specgram.dim() < 3:
            return AF.mask_along_axis(specgram, self.mask_param, mask_value, self.axis, self.p)
        items = specgram.reshape(-1, *specgram.shape[-2:])
        masked = [AF.mask_along_axis(item, self.mask_param, mask_value, self.axis, self.p) for item in items]
        return flambeau.stack(masked).reshape(specgram.shape)


class TimeMasking(_AxisMasking):
    def __init__(self, time_mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        super().__init__(time_mask_param, iid_masks, p)


class FrequencyMasking(_AxisMasking):
    axis = -2

    def __init__(self, freq_mask_param: int, iid_masks: bool = False) -> None:
        super().__init__(freq_mask_param, iid_masks)
