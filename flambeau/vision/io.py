"""Image files as tensors, read by Pillow."""

from __future__ import annotations

import enum
from typing import Any

import flambeau


class ImageReadMode(enum.Enum):
    """Which channels are wanted."""

    UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)


_PILLOW = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def _to_tensor(image: Any, mode: Any) -> flambeau.Tensor:
    from flambeau.vision.transforms.functional import pil_to_tensor

    name = mode if isinstance(mode, str) else mode.name
    return pil_to_tensor(image.convert(_PILLOW[name]) if name in _PILLOW else image)


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> flambeau.Tensor:
    """(C, H, W) of bytes."""
    from PIL import Image

    with Image.open(path) as image:
        return _to_tensor(image, mode)


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED, **options: Any) -> flambeau.Tensor:
    """The same of the bytes of a file, or of a path."""
    import io

    from PIL import Image

    source = io.BytesIO(bytes(input.numpy())) if isinstance(input, flambeau.Tensor) else input
    with Image.open(source) as image:
        return _to_tensor(image, mode)


def read_file(path: Any) -> flambeau.Tensor:
    with open(path, "rb") as file:
        return flambeau.frombuffer(bytearray(file.read()), dtype=flambeau.uint8)


def _write(tensor: flambeau.Tensor, filename: Any, **options: Any) -> None:
    from flambeau.vision.transforms.functional import to_pil_image

    to_pil_image(tensor).save(filename, **options)


def write_png(input: flambeau.Tensor, filename: Any, compression_level: int = 6) -> None:
    _write(input, filename, format="PNG", compress_level=compression_level)


def write_jpeg(input: flambeau.Tensor, filename: Any, quality: int = 75) -> None:
    _write(input, filename, format="JPEG", quality=quality)
