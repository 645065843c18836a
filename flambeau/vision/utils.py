"""Several images in one, and image files."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor

__all__ = ["make_grid", "save_image"]


@flambeau.no_grad()
def make_grid(
    tensor: Any,
    nrow: int = 8,
    padding: int = 2,
    normalize: bool = False,
    value_range: tuple[float, float] | None = None,
    scale_each: bool = False,
    pad_value: float = 0.0,
) -> Tensor:
    """The images of a batch in rows of nrow, as one image of (C, H, W)."""
    if not isinstance(tensor, Tensor):
        if not isinstance(tensor, (list, tuple)) or not all(isinstance(t, Tensor) for t in tensor):
            raise TypeError(f"[make_grid] expected a tensor or a list of tensors, got {type(tensor).__name__}")
        tensor = flambeau.stack(list(tensor), dim=0)
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 3:
        tensor = tensor.expand(3, -1, -1) if tensor.size(0) == 1 else tensor
        tensor = tensor.unsqueeze(0)
    if tensor.dim() == 4 and tensor.size(1) == 1:
        tensor = tensor.expand(-1, 3, -1, -1)
    if normalize:
        tensor = tensor.clone()
        for part in tensor if scale_each else (tensor,):
            low, high = value_range or (float(part.min()), float(part.max()))
            part.clamp_(low, high).sub_(low).div_(max(high - low, 1e-5))
    if tensor.size(0) == 1:
        return tensor.squeeze(0)
    count, channels, height, width = tensor.shape
    columns = min(nrow, count)
    rows = math.ceil(count / columns)
    high, wide = height + padding, width + padding
    grid = tensor.new_full((channels, high * rows + padding, wide * columns + padding), pad_value)
    for i in range(count):
        top, left = i // columns * high + padding, i % columns * wide + padding
        grid[:, top : top + height, left : left + width] = tensor[i]
    return grid


@flambeau.no_grad()
def save_image(tensor: Any, fp: Any, format: str | None = None, **options: Any) -> None:
    """An image file of a batch of images with values between 0 and 1."""
    grid = make_grid(tensor, **options).mul(255).add_(0.5).clamp_(0, 255).permute(1, 2, 0).to(flambeau.uint8)
    array = grid.contiguous().numpy()
    try:
        from PIL import Image
    except ImportError:
        _write_png(array, fp)
        return
    Image.fromarray(array).save(fp, format=format)


def _write_png(array: Any, path: Any) -> None:
    """A PNG file of bytes (H, W, 3), for where Pillow is not installed."""
    import struct
    import zlib

    height, width, _ = array.shape
    lines = b"".join(b"\0" + row.tobytes() for row in array)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    if hasattr(path, "write"):
        path.write(content)
    else:
        with open(path, "wb") as file:
            file.write(content)
