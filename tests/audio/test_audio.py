"""Spectrograms, resampling and WAV files against independent formulas; `tests/parity` compares with torchaudio."""

import doctest
import io
import math
import wave

import numpy as np
import pytest

import flambeau as fl
from flambeau import audio
from flambeau.audio import functional as AF
from flambeau.audio import transforms

RATE = 8000


def tone(frequency, seconds=1.0):
    return fl.sin(2 * math.pi * frequency * fl.arange(int(RATE * seconds)) / RATE)


def test_examples():
    assert doctest.testmod(transforms, extraglobs={"flambeau": fl}).failed == 0


def test_a_tone_is_loudest_at_its_frequency():
    spectrum = transforms.Spectrogram(n_fft=400)(tone(1000)[None])[0]
    assert spectrum.mean(1).argmax().item() == 1000 * 400 // RATE
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(tone(1000).numpy(), 200, mode="reflect"), 400)[::200]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    want = np.abs(np.fft.rfft(frames * hann, axis=1).T) ** 2
    assert np.allclose(spectrum.numpy(), want, atol=1e-2)


def test_the_inverse_gives_the_waveform_back():
    x = fl.randn(2, 3000)
    spectra = transforms.Spectrogram(power=None)(x)
    fl.testing.assert_close(transforms.InverseSpectrogram()(spectra, 3000), x, rtol=1e-4, atol=1e-4)


def test_cepstra_are_an_orthogonal_transform_of_mel_decibels():
    x = tone(500)[None] + 0.1 * tone(2000)
    dct = AF.create_dct(40, 40, "ortho")
    fl.testing.assert_close(dct.t() @ dct, fl.eye(40), rtol=1e-4, atol=1e-5)
    options = {"n_mels": 40, "n_fft": 400}
    decibels = transforms.AmplitudeToDB(top_db=80.0)(transforms.MelSpectrogram(RATE, **options)(x))
    want = (decibels.transpose(-1, -2) @ dct).transpose(-1, -2)
    fl.testing.assert_close(transforms.MFCC(RATE, 40, melkwargs=options)(x), want, rtol=1e-4, atol=1e-3)


def test_a_resampled_tone_keeps_its_frequency():
    y = transforms.Resample(RATE, 12000)(tone(440)[None])[0]
    want = fl.sin(2 * math.pi * 440 * fl.arange(12000) / 12000)
    assert float((y - want)[200:-200].abs().max()) < 5e-3


@pytest.mark.parametrize("dtype", [fl.uint8, fl.int16, fl.int32, fl.float32])
def test_files_hold_what_was_saved(dtype, tmp_path):
    samples = (fl.rand(2, 50) * 100).to(dtype)
    audio.save(tmp_path / "a.wav", samples, RATE)
    back, rate = audio.load(tmp_path / "a.wav", normalize=False)
    assert rate == RATE and back.equal(samples)
    assert audio.info(tmp_path / "a.wav").num_frames == 50


def test_python_reads_files_of_integers():
    stream = io.BytesIO()
    audio.save(stream, tone(100)[None], RATE, encoding="PCM_S", bits_per_sample=16)
    stream.seek(0)
    with wave.open(stream) as file:
        samples = np.frombuffer(file.readframes(RATE), np.int16)
    assert np.abs(samples / 2**15 - tone(100).numpy()).max() < 1e-4
    with pytest.raises(RuntimeError, match="expected a WAV file"):
        audio.load(io.BytesIO(b"not a file of sound"))
