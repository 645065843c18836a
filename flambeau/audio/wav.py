"""WAV files: integers of 8 to 32 bits and floating point numbers, in the chunks of the RIFF format."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import flambeau
from flambeau import Tensor

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


@dataclass
class AudioMetaData:
    """What the head of a file says."""

    sample_rate: int
    num_frames: int
    num_channels: int
    bits_per_sample: int
    encoding: str


@dataclass
class _Format:
    kind: int
    channels: int
    rate: int
    bits: int


def _bytes_of(source: Any) -> bytes:
    if hasattr(source, "read"):
        return bytes(source.read())
    with open(source, "rb") as file:
        return file.read()


def _chunks(op: str, content: bytes) -> tuple[_Format, bytes]:
    """The format of a file, and its samples."""
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise RuntimeError(f"[{op}] expected a WAV file, got one that begins with {content[:12]!r}")
    place, chunk = 12, None
    while place + 8 <= len(content):
        name, size = content[place : place + 4], struct.unpack_from("<I", content, place + 4)[0]
        body = content[place + 8 : place + 8 + size]
        if name == b"fmt ":
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if kind == _EXTENSIBLE:
                kind = struct.unpack_from("<H", body, 24)[0]
            chunk = _Format(kind, channels, rate, bits)
        elif name == b"data" and chunk is not None:
            return chunk, body
        place += 8 + size + size % 2
    raise RuntimeError(f"[{op}] expected chunks of format and data, got a file without one of them")


def _samples(op: str, form: _Format, body: bytes) -> Tensor:
    """The stored numbers in one row; those of 24 bits are shifted to 32."""
    dtypes = {
        (_PCM, 8): flambeau.uint8, (_PCM, 16): flambeau.int16, (_PCM, 32): flambeau.int32,
        (_FLOAT, 32): flambeau.float32, (_FLOAT, 64): flambeau.float64,
    }  # fmt: skip
    if (form.kind, form.bits) == (_PCM, 24):
        parts = flambeau.frombuffer(bytearray(body[: len(body) // 3 * 3]), dtype=flambeau.uint8).reshape(-1, 3)
        low, middle, high = parts.to(flambeau.int32).unbind(1)
        return low * 2**8 + middle * 2**16 + (high - (high >= 128).to(flambeau.int32) * 256) * 2**24
    dtype = dtypes.get((form.kind, form.bits))
    if dtype is None:
        raise RuntimeError(
            f"[{op}] expected integers or floating point numbers, got format {form.kind} of {form.bits} bits"
        )
    width = form.bits // 8
    if len(body) < width:
        return flambeau.empty(0, dtype=dtype)
    return flambeau.frombuffer(bytearray(body[: len(body) // width * width]), dtype=dtype)


def info(uri: Any, format: str | None = None) -> AudioMetaData:
    """Rate, length and encoding of a file."""
    form, body = _chunks("info", _bytes_of(uri))
    encoding = "PCM_F" if form.kind == _FLOAT else "PCM_U" if form.bits == 8 else "PCM_S"
    frames = len(body) // (form.channels * form.bits // 8)
    return AudioMetaData(form.rate, frames, form.channels, form.bits, encoding)


def load(
    uri: Any,
    frame_offset: int = 0,
    num_frames: int = -1,
    normalize: bool = True,
    channels_first: bool = True,
    format: str | None = None,
    buffer_size: int = 4096,
    backend: str | None = None,
) -> tuple[Tensor, int]:
    """The waveform (channels, frames), from -1 to 1 unless `normalize=False`, and the sample rate."""
    form, body = _chunks("load", _bytes_of(uri))
    samples = _samples("load", form, body).reshape(-1, form.channels)
    samples = samples[frame_offset : frame_offset + num_frames if num_frames >= 0 else None]
    if normalize and not samples.is_floating_point():
        if samples.dtype is flambeau.uint8:
            samples = (samples.to(flambeau.float32) - 128) / 128
        else:
            samples = samples.to(flambeau.float32) / 2.0 ** (15 if samples.dtype is flambeau.int16 else 31)
    elif normalize:
        samples = samples.to(flambeau.float32)
    return (samples.t().contiguous() if channels_first else samples), form.rate


def save(
    uri: Any,
    src: Tensor,
    sample_rate: int,
    channels_first: bool = True,
    format: str | None = None,
    encoding: str | None = None,
    bits_per_sample: int | None = None,
    **options: Any,
) -> None:
    """Write a waveform. Floating point numbers stay such, unless `encoding="PCM_S"` or `bits_per_sample=16` is asked for."""
    if format not in (None, "wav"):
        raise RuntimeError(f"[save] expected the format 'wav', got {format!r}")
    if src.dim() != 2:
        raise ValueError(f"[save] expected a waveform of two dimensions, got shape {tuple(src.shape)}")
    frames = (src.t() if channels_first else src).detach().cpu().contiguous()
    integers = encoding in ("PCM_S", "PCM_U") or (encoding is None and bits_per_sample in (8, 16, 24))
    if frames.is_floating_point() and integers:
        bits = bits_per_sample or 16
        if bits not in (16, 32):
            raise RuntimeError(f"[save] expected 16 or 32 bits for integers, got {bits}")
        top = 2 ** (bits - 1)
        scaled = (frames.to(flambeau.float64) * top).round().clamp(-top, top - 1)
        frames = scaled.to(flambeau.int16 if bits == 16 else flambeau.int32)
    elif frames.dtype in (flambeau.float16, flambeau.bfloat16) or (frames.dtype is flambeau.float64 and bits_per_sample != 64):  # fmt: skip
        frames = frames.to(flambeau.float32)
    if frames.dtype not in (flambeau.uint8, flambeau.int16, flambeau.int32, flambeau.float32, flambeau.float64):
        raise RuntimeError(f"[save] expected uint8, int16, int32 or a floating dtype, got {frames.dtype}")
    body = frames.numpy().tobytes()
    width, channels = frames.element_size(), frames.shape[1]
    kind = _FLOAT if frames.is_floating_point() else _PCM
    head = struct.pack(
        "<HHIIHH", kind, channels, sample_rate, sample_rate * channels * width, channels * width, 8 * width
    )
    pad = b"\0" * (len(body) % 2)
    content = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(body)) + body + pad
    content = b"RIFF" + struct.pack("<I", len(content)) + content
    if hasattr(uri, "write"):
        uri.write(content)
    else:
        with open(uri, "wb") as file:
            file.write(content)
