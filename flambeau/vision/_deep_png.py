"""PNG images of 16 bits a channel, whose lower bits Pillow drops."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {0: 1, 2: 3, 4: 2, 6: 4}  # by color type
_LARGEST = 1 << 31  # bytes of pixels


def is_deep(data: bytes) -> bool:
    """Whether the bytes are a PNG with 16 bits a channel."""
    return data[:8] == _SIGNATURE and data[12:16] == b"IHDR" and len(data) > 33 and data[24] == 16


def decode(data: bytes) -> np.ndarray:
    """(height, width, channels) of uint16."""
    width, height, _, color, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if color not in _CHANNELS or not width or not height:
        raise RuntimeError(f"[decode_png] expected an image with pixels, got {width} x {height} of color type {color}")
    if interlaced:
        raise NotImplementedError("[decode_png] expected 16-bit images without interlacing, got one with it")
    step = 2 * _CHANNELS[color]
    size = height * (1 + width * step)
    if size > _LARGEST:
        raise RuntimeError(f"[decode_png] expected at most {_LARGEST} bytes of pixels, got {size}")
    try:
        pixels = zlib.decompressobj().decompress(b"".join(_parts(data)), size)
    except zlib.error as error:
        raise RuntimeError(f"[decode_png] expected compressed pixels, got {error}") from None
    if len(pixels) != size:
        raise RuntimeError(
            f"[decode_png] expected {size} bytes of pixels, got {len(pixels)}: the file is truncated; "
            "Out of bound read in decode_png"
        )
    rows = np.frombuffer(pixels, np.uint8).reshape(height, 1 + width * step)
    image = np.zeros((height + 1, width, step), np.uint8)
    for y, row in enumerate(rows):
        _unfilter(int(row[0]), row[1:].reshape(width, step), image[y], image[y + 1])
    return image[1:].reshape(height, width, -1, 2).view(">u2").reshape(height, width, -1).astype(np.uint16)


def with_channels(pixels: np.ndarray, count: int) -> np.ndarray:
    """The pixels as gray (1), gray and alpha (2), colors (3) or colors and alpha (4)."""
    have = pixels.shape[2]
    alpha = pixels[..., -1:] if have in (2, 4) else np.full_like(pixels[..., :1], 65535)
    colors = pixels[..., : have - (have in (2, 4))]
    if count <= 2 and colors.shape[2] == 3:
        colors = np.rint(colors @ np.array([[0.2989], [0.587], [0.1141]])).astype(np.uint16)
    elif count >= 3 and colors.shape[2] == 1:
        colors = np.repeat(colors, 3, 2)
    return np.concatenate([colors, alpha], 2) if count in (2, 4) else colors


def _parts(data: bytes) -> Iterator[bytes]:
    """The compressed pixels, chunk by chunk."""
    at = 8
    while at + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IDAT":
            yield data[at + 8 : at + 8 + length]
        at += 12 + length


def _unfilter(kind: int, row: np.ndarray, above: np.ndarray, out: np.ndarray) -> None:
    """Undo what a row's filter took away: the pixel on the left, the one above, their average or the nearest of three."""
    if kind == 0:
        out[:] = row
    elif kind == 1:
        out[:] = np.cumsum(row, 0, dtype=np.uint8)
    elif kind == 2:
        out[:] = row + above
    elif kind in (3, 4):
        predict = _average if kind == 3 else _nearest
        columns = []
        for deltas, ups in zip(row.T.tolist(), above.T.tolist()):
            left = corner = 0
            values = []
            for delta, up in zip(deltas, ups):
                left, corner = (delta + predict(left, up, corner)) & 255, up
                values.append(left)
            columns.append(values)
        out[:] = np.array(columns, np.uint8).T
    else:
        raise RuntimeError(f"[decode_png] expected a row filter from 0 to 4, got {kind}")


def _average(left: int, up: int, corner: int) -> int:
    return (left + up) >> 1


def _nearest(left: int, up: int, corner: int) -> int:
    from_left, from_up, from_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if from_left <= from_up and from_left <= from_corner:
        return left
    return up if from_up <= from_corner else corner
