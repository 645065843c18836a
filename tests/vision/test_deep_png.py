"""PNG images of 16 bits a channel keep all of them."""

import struct
import zlib

import numpy as np
import pytest

import flambeau as fl
from flambeau.vision import io

COLORS = {1: 0, 2: 4, 3: 2, 4: 6}


def encode(pixels: np.ndarray) -> bytes:
    """A PNG whose rows use all filters in turn."""
    height, width, channels = pixels.shape
    step = 2 * channels
    rows = np.ascontiguousarray(pixels.astype(">u2")).view(np.uint8).reshape(height, width * step).astype(int)
    text, above = b"", np.zeros(width * step, int)
    for y, row in enumerate(rows):
        left = np.concatenate([np.zeros(step, int), row[:-step]])
        corner = np.concatenate([np.zeros(step, int), above[:-step]])
        guess = left + above - corner
        distances = np.abs(np.stack([guess - left, guess - above, guess - corner]))
        nearest = np.choose(distances.argmin(0), [left, above, corner])
        kind = y % 5
        text += (
            bytes([kind])
            + ((row - [0, left, above, (left + above) // 2, nearest][kind]) % 256).astype(np.uint8).tobytes()
        )
        above = row
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, COLORS[channels], 0, 0, 0))]
    packed = zlib.compress(text)
    chunks += [(b"IDAT", packed[:50]), (b"IDAT", packed[50:]), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def of(data: bytes) -> fl.Tensor:
    return fl.frombuffer(bytearray(data), dtype=fl.uint8)


@pytest.mark.parametrize("channels", COLORS)
def test_all_bits_are_kept(channels):
    pixels = np.random.default_rng(channels).integers(0, 65536, (11, 7, channels)).astype(np.uint16)
    image = io.decode_image(of(encode(pixels)))
    assert image.dtype is fl.uint16 and image.shape == (channels, 11, 7)
    assert np.array_equal(image.numpy().transpose(1, 2, 0), pixels)
    alpha = io.decode_png(of(encode(pixels)), "RGB_ALPHA").numpy()[-1]
    assert np.array_equal(alpha, pixels[..., -1] if channels in (2, 4) else np.full((11, 7), 65535))
    gray = io.decode_png(of(encode(pixels)), io.ImageReadMode.GRAY)
    assert gray.shape == (1, 11, 7)
    assert gray.int().max() <= int(pixels.max())


def test_damaged_files_are_refused():
    data = encode(np.random.default_rng(0).integers(0, 65536, (11, 7, 3)).astype(np.uint16))
    for end in (40, 60, 200):
        with pytest.raises(RuntimeError, match=r"\[decode_png\]"):
            io.decode_png(of(data[:end]))
    huge = data[:16] + struct.pack(">II", 2**31 - 1, 2**31 - 1) + data[24:]
    with pytest.raises(RuntimeError, match="bytes of pixels"):
        io.decode_png(of(huge))
