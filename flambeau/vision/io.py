"""Image files and their bytes as tensors of uint8, read and written by Pillow."""

from __future__ import annotations

import contextlib
import enum
import io
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.vision import _deep_png


class ImageReadMode(enum.Enum):
    """Which channels are wanted."""

    UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGB_ALPHA = range(5)
    RGBA = 4


_PILLOW = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _mode(mode: Any) -> ImageReadMode:
    return ImageReadMode[mode.upper()] if isinstance(mode, str) else ImageReadMode(getattr(mode, "value", mode))


def _check_bytes(op: str, input: Any) -> None:
    why = None
    if not isinstance(input, Tensor) or input.dtype is not flambeau.uint8:
        why = "Input tensor must have uint8 data type"
    elif input.dim() != 1 or input.numel() == 0:
        why = "Input tensor must be 1-dimensional and not empty"
    elif not input.is_contiguous():
        why = "Input tensor must be contiguous"
    if why is not None:
        shown = f"{input.dtype} {tuple(input.shape)}" if isinstance(input, Tensor) else type(input).__name__
        raise RuntimeError(
            f"[{op}] expected the bytes of a file as a one-dimensional tensor of uint8, got {shown}: {why}"
        )


# What torchvision says of bytes that are no image of the format.
_FOREIGN = {
    "decode_png": "Content is not png", "decode_jpeg": "Not a JPEG file", "decode_webp": "WebPGetFeatures failed.",
    "decode_gif": "DGifOpenFileName() failed - 103",
}  # fmt: skip


@contextlib.contextmanager
def _opened(op: str, data: bytes, formats: Any) -> Iterator[Any]:
    """An image of Pillow's; what it raises becomes a RuntimeError."""
    from PIL import Image

    try:
        image = Image.open(io.BytesIO(data), formats=formats)
    except (OSError, SyntaxError, ValueError) as error:
        small = "Content is too small for png" if op == "decode_png" and _is_png(data) else _FOREIGN.get(op, str(error))
        raise RuntimeError(f"[{op}] expected an image of a known format, got other bytes: {small}") from None
    try:
        with image:
            yield image
    except (OSError, SyntaxError) as error:
        truncated = "truncated" in str(error)
        why = "Image is incomplete or truncated" if truncated else f"Unsupported marker type or damaged data ({error})"
        raise RuntimeError(f"[{op}] expected an image that is whole, got a damaged one: {why}") from None


def _is_png(data: bytes) -> bool:
    return data.startswith(b"\x89PNG")


def _pixels(image: Any) -> Tensor:
    """(C, H, W), laid out as (H, W, C), which is how decoders write them."""
    from flambeau.vision.transforms.functional import pil_to_tensor

    return pil_to_tensor(image)[None].contiguous(memory_format=flambeau.channels_last)[0]


def _decode(op: str, input: Any, mode: Any, exif: bool, formats: Any = None) -> Tensor:
    """The pixels (C, H, W) of an encoded image."""
    from PIL import ImageOps

    _check_bytes(op, input)
    data = input.numpy().tobytes()
    if _deep_png.is_deep(data) and formats in (None, ("PNG",)):
        return _decode_deep(data, _mode(mode).value, exif)
    wanted = _PILLOW.get(_mode(mode).value)
    with _opened(op, data, formats) as image:
        image.load()
        inverted = wanted is None and image.mode == "CMYK"  # how JPEG files hold it
        if exif:
            image = ImageOps.exif_transpose(image)
        if wanted is None and image.mode == "1":
            wanted = "L"
        pixels = _pixels(image.convert(wanted) if wanted not in (None, image.mode) else image)
    if inverted:
        return 255 - pixels
    return pixels.to(flambeau.uint16) if pixels.dtype in (flambeau.int16, flambeau.int32) else pixels


# How an orientation that a camera notes is undone: exchanged sides, then flipped dimensions.
_TURNS = {2: (False, [2]), 3: (False, [1, 2]), 4: (False, [1]), 5: (True, []), 6: (True, [2]), 7: (True, [1, 2]), 8: (True, [1])}  # fmt: skip


def _decode_deep(data: bytes, channels: int, exif: bool) -> Tensor:
    """The pixels of a PNG with 16 bits a channel, as uint16."""
    from PIL import Image

    pixels = _deep_png.decode(data)
    pixels = _deep_png.with_channels(pixels, channels or pixels.shape[2])
    image = flambeau.from_numpy(pixels.transpose(2, 0, 1).copy())
    if exif:
        exchanged, flipped = _TURNS.get(Image.open(io.BytesIO(data)).getexif().get(0x0112, 1), (False, []))
        image = (image.transpose(1, 2) if exchanged else image).flip(flipped).contiguous()
    return image


def read_file(path: Any) -> Tensor:
    """The bytes of a file."""
    try:
        with open(path, "rb") as file:
            content = bytearray(file.read())
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: {str(path)!r}") from None
    if not content:
        raise RuntimeError(f"[read_file] expected a non-empty file, got {str(path)!r}")
    return flambeau.frombuffer(content, dtype=flambeau.uint8)


def write_file(filename: Any, data: Tensor) -> None:
    """Write bytes into a file."""
    _check_bytes("write_file", data)
    with open(filename, "wb") as file:
        file.write(data.numpy().tobytes())


def decode_png(input: Tensor, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    return _decode("decode_png", input, mode, apply_exif_orientation, ("PNG",))


def decode_jpeg(
    input: Any, mode: Any = ImageReadMode.UNCHANGED, device: Any = "cpu", apply_exif_orientation: bool = False
) -> Any:
    """Pixels of a JPEG, or of each of a list."""
    if isinstance(input, (list, tuple)):
        if not input:
            raise ValueError("[decode_jpeg] expected at least one image, got an empty list")
        return [decode_jpeg(item, mode, device, apply_exif_orientation) for item in input]
    return _decode("decode_jpeg", input, mode, apply_exif_orientation, ("JPEG",)).to(device)


def decode_webp(input: Tensor, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    return _decode("decode_webp", input, mode, False, ("WEBP",))


def decode_gif(input: Tensor) -> Tensor:
    """(3, H, W), or (frames, 3, H, W) of an animation."""
    from PIL import ImageSequence

    _check_bytes("decode_gif", input)
    with _opened("decode_gif", input.numpy().tobytes(), ("GIF",)) as image:
        frames = [_pixels(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    return frames[0] if len(frames) == 1 else flambeau.stack(frames).contiguous(memory_format=flambeau.channels_last)


def decode_image(input: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Pixels of a PNG, JPEG, GIF or WebP, from its bytes or a path."""
    data = input if isinstance(input, Tensor) else read_file(input)
    if data.dim() == 1 and data.numel() > 4 and bytes(data[:4].tolist()) == b"GIF8":
        return decode_gif(data)
    return _decode("decode_image", data, mode, apply_exif_orientation)


def read_image(path: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """Pixels of an image file."""
    return decode_image(read_file(path), mode, apply_exif_orientation)


def _encode(op: str, input: Tensor, **options: Any) -> Tensor:
    from flambeau.vision.transforms.functional import to_pil_image

    if input.dtype is not flambeau.uint8:
        raise RuntimeError(f"[{op}] expected an image of uint8, got {input.dtype}: Input tensor dtype should be uint8")
    if input.dim() != 3 or input.shape[0] not in (1, 3):
        channels = f"The number of channels should be 1 or 3, got: {input.shape[0]}" if input.dim() == 3 else ""
        raise RuntimeError(
            f"[{op}] expected an image of shape (1 or 3, height, width), got {tuple(input.shape)}: "
            + (channels or "Input data should be a 3-dimensional tensor")
        )
    stream = io.BytesIO()
    to_pil_image(input).save(stream, **options)
    return flambeau.frombuffer(bytearray(stream.getvalue()), dtype=flambeau.uint8)


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    if not 0 <= compression_level <= 9:
        raise RuntimeError(
            f"[encode_png] expected a compression level from 0 to 9, got {compression_level}: "
            "Compression level should be between 0 and 9"
        )
    return _encode("encode_png", input, format="PNG", compress_level=compression_level)


def encode_jpeg(input: Any, quality: int = 75) -> Any:
    if not 1 <= quality <= 100:
        raise ValueError(
            f"[encode_jpeg] expected a quality from 1 to 100, got {quality}: "
            "Image quality should be a positive number between 1 and 100"
        )
    if isinstance(input, (list, tuple)):
        if not input:
            raise ValueError("[encode_jpeg] expected at least one image, got an empty list")
        return [encode_jpeg(image, quality) for image in input]
    return _encode("encode_jpeg", input, format="JPEG", quality=quality)


def write_png(input: Tensor, filename: Any, compression_level: int = 6) -> None:
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: Any, quality: int = 75) -> None:
    write_file(filename, encode_jpeg(input, quality))


def _on_the_host(images: list[Tensor], *args: Any) -> Any:
    raise NotImplementedError(
        "[vision.io] expected JPEG images on the CPU, where they are read and written, got a device"
    )


def register_operators() -> None:
    """`ops.image`, under the names of torchvision's own extension for images."""
    from flambeau import library

    if "decode_image" in dir(flambeau.ops.image):
        return
    decoded = "(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor"
    operators = {
        "decode_png": (decoded, decode_png),
        "decode_jpeg": (decoded, lambda data, mode, exif=False: decode_jpeg(data, mode, "cpu", exif)),
        "decode_image": (decoded, decode_image),
        "decode_webp": ("(Tensor encoded_data, int mode) -> Tensor", decode_webp),
        "decode_gif": ("(Tensor data) -> Tensor", decode_gif),
        "encode_png": ("(Tensor input, int compression_level) -> Tensor", encode_png),
        "encode_jpeg": ("(Tensor input, int quality) -> Tensor", encode_jpeg),
        "read_file": ("(str path) -> Tensor", read_file),
        "write_file": ("(str filename, Tensor data) -> ()", write_file),
        "decode_jpegs_cuda": ("(Tensor[] encoded_images, int mode, Device device) -> Tensor[]", _on_the_host),
        "encode_jpegs_cuda": ("(Tensor[] decoded_images, int quality) -> Tensor[]", _on_the_host),
    }
    for name, (schema, function) in operators.items():
        library.define(f"image::{name}", schema)
        library.impl(f"image::{name}", "CompositeImplicitAutograd", function)
