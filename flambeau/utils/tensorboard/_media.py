"""Pictures and sounds as files in memory: PNG and WAV, and the grid that shows a batch of pictures."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import flambeau
from flambeau._C import Tensor


def as_tensor(value: Any) -> Tensor:
    """Tensors, arrays, numbers and lists as a CPU tensor without history."""
    tensor = value if isinstance(value, Tensor) else flambeau.as_tensor(value)
    return tensor.detach().cpu()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(picture: Tensor) -> bytes:
    """A picture of bytes in height, width, channels; with 1, 3 or 4 channels."""
    height, width, channels = picture.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = flambeau.zeros(height, width * channels + 1, dtype=flambeau.uint8)  # each row starts with its filter: none
    rows[:, 1:] = picture.reshape(height, width * channels)
    pixels = zlib.compress(rows.numpy().tobytes(), 6)
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def wav(sound: Tensor, rate: int) -> bytes:
    """Samples between -1 and 1 in one channel, as 16-bit numbers."""
    samples = (sound.to(flambeau.float32).clamp(-1, 1) * 32767).to(flambeau.int16).numpy().astype("<i2").tobytes()
    head = struct.pack("<HHIIHH", 1, 1, rate, rate * 2, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", len(body)) + body


def as_picture(value: Any, order: str) -> Tensor:
    """Bytes in height, width, channels from a picture, or a batch of them, whose dimensions are named by `order`."""
    picture = as_tensor(value)
    order = order.upper()
    if len(order) != picture.dim() or len(set(order)) != len(order) or not set(order) <= set("NCHW"):
        raise ValueError(
            f"[tensorboard] expected dataformats that name each of {picture.dim()} dimensions by one of N, C, H and W, "
            f"got {order!r}"
        )
    if picture.dtype != flambeau.uint8:
        if not picture.is_floating_point():
            picture = picture.to(flambeau.uint8)
        else:
            picture = (picture.to(flambeau.float32) * 255).clamp(0, 255).to(flambeau.uint8)
    if "C" not in order:
        picture, order = picture.unsqueeze(-1), order + "C"
    if "N" in order:
        return _grid(picture.permute([order.index(d) for d in "NHWC"]))
    picture = picture.permute([order.index(d) for d in "HWC"])
    if picture.shape[2] not in (1, 3, 4):
        raise ValueError(f"[tensorboard] expected pictures of 1, 3 or 4 channels, got {picture.shape[2]}")
    return picture.contiguous()


def _grid(pictures: Tensor) -> Tensor:
    """Pictures side by side, at most eight in a row."""
    count, height, width, channels = pictures.shape
    if channels == 1:
        pictures, channels = pictures.expand(count, height, width, 3), 3
    columns = min(count, 8)
    rows = -(-count // columns)
    out = flambeau.zeros(rows * height, columns * width, channels, dtype=flambeau.uint8)
    for i in range(count):
        y, x = i // columns * height, i % columns * width
        out[y : y + height, x : x + width] = pictures[i]
    return out


def rescale(picture: Tensor, factor: float) -> Tensor:
    """The picture with its sides multiplied, by nearest pixels."""
    if factor == 1:
        return picture
    height, width = max(1, int(picture.shape[0] * factor)), max(1, int(picture.shape[1] * factor))
    rows = (flambeau.arange(height) * picture.shape[0] // height).clamp(max=picture.shape[0] - 1)
    columns = (flambeau.arange(width) * picture.shape[1] // width).clamp(max=picture.shape[1] - 1)
    return picture[rows][:, columns].contiguous()


def figure_to_picture(figure: Any, close: bool = True) -> Tensor:
    """What a matplotlib figure, or several of the same size, look like; in channels, height, width."""
    if isinstance(figure, (list, tuple)):
        return flambeau.stack([figure_to_picture(f, close) for f in figure])
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    pixels = flambeau.frombuffer(bytearray(canvas.buffer_rgba()), dtype=flambeau.uint8).view(height, width, 4)
    if close:
        import matplotlib.pyplot

        matplotlib.pyplot.close(figure)
    return pixels[:, :, :3].permute(2, 0, 1).contiguous()
