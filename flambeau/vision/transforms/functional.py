"""What the transforms do, as functions. Tensors and Pillow's images are both taken; the result is of the same kind."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.nn import functional as F


class InterpolationMode(enum.Enum):
    """How new pixels are made from old ones."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Numbers that Pillow gives to the modes.
_PILLOW = {
    InterpolationMode.NEAREST: 0,
    InterpolationMode.NEAREST_EXACT: 0,
    InterpolationMode.LANCZOS: 1,
    InterpolationMode.BILINEAR: 2,
    InterpolationMode.BICUBIC: 3,
    InterpolationMode.BOX: 4,
    InterpolationMode.HAMMING: 5,
}
pil_modes_mapping = _PILLOW


def _interpolation_mode_from_int(number: int) -> InterpolationMode:
    for mode in ("NEAREST", "LANCZOS", "BILINEAR", "BICUBIC", "BOX", "HAMMING"):
        if _PILLOW[InterpolationMode[mode]] == number:
            return InterpolationMode[mode]
    raise ValueError(f"[transforms] expected the number of an interpolation mode, got {number}")


def _mode(value: Any) -> InterpolationMode:
    if isinstance(value, int):
        return _interpolation_mode_from_int(value)
    return InterpolationMode(value)


def _is_pillow(image: Any) -> bool:
    return type(image).__module__.startswith("PIL.")


def _check(image: Any, op: str) -> bool:
    """Whether it is Pillow's; an error when it is no image at all."""
    if isinstance(image, Tensor):
        if image.ndim < 2:
            raise TypeError(f"[{op}] expected an image tensor of (…, H, W), got {image.ndim} dimensions")
        return False
    if not _is_pillow(image):
        raise TypeError(f"[{op}] expected a tensor or a Pillow image, got {type(image).__name__}")
    return True


# ---------------------------------------------------------------------------------------------- sizes and conversion


def get_dimensions(img: Any) -> list[int]:
    """Channels, height and width."""
    if _check(img, "get_dimensions"):
        return [len(img.getbands()), img.height, img.width]
    return [1 if img.ndim == 2 else img.shape[-3], img.shape[-2], img.shape[-1]]


def get_image_size(img: Any) -> list[int]:
    """Width and height."""
    return get_dimensions(img)[:0:-1]


def get_image_num_channels(img: Any) -> int:
    return get_dimensions(img)[0]


def pil_to_tensor(pic: Any) -> Tensor:
    """(C, H, W) with the values of the image."""
    if not _is_pillow(pic):
        raise TypeError(f"[pil_to_tensor] expected a Pillow image, got {type(pic).__name__}")
    import numpy as np

    array = np.array(pic, copy=True)
    if pic.mode == "1":
        array = array.astype(np.uint8) * 255
    if array.dtype == np.uint16:
        array = array.astype(np.int32)
    tensor = flambeau.from_numpy(array)
    return (tensor[..., None] if tensor.ndim == 2 else tensor).permute(2, 0, 1).contiguous()


def to_tensor(pic: Any) -> Tensor:
    """(C, H, W); bytes become fractions of 255. Takes a Pillow image or an array of (H, W, C)."""
    if _is_pillow(pic):
        tensor = pil_to_tensor(pic)
    elif type(pic).__module__ == "numpy":
        if pic.ndim not in (2, 3):
            raise ValueError(f"[to_tensor] expected an array of two or three dimensions, got {pic.ndim}")
        array = pic[:, :, None] if pic.ndim == 2 else pic
        tensor = flambeau.from_numpy(array.transpose((2, 0, 1)).copy())
    else:
        raise TypeError(f"[to_tensor] expected a Pillow image or an array, got {type(pic).__name__}")
    return tensor.to(flambeau.get_default_dtype()).div(255) if tensor.dtype == flambeau.uint8 else tensor


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A Pillow image of a tensor (C, H, W) or an array (H, W, C)."""
    from PIL import Image

    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"[to_pil_image] expected two or three dimensions, got {pic.ndim}")
        tensor = pic.unsqueeze(0) if pic.ndim == 2 else pic
        if tensor.shape[0] > 4:
            raise ValueError(f"[to_pil_image] expected at most four channels, got {tensor.shape[0]}")
        if tensor.is_floating_point() and mode != "F":
            tensor = tensor.mul(255).to(flambeau.uint8)
        array = tensor.permute(1, 2, 0).contiguous().numpy()
    else:
        array = pic[:, :, None] if pic.ndim == 2 else pic
    if array.shape[2] == 1:
        array = array[:, :, 0]
    image = Image.fromarray(array)
    return image.convert(mode) if mode is not None and mode != image.mode else image


def convert_image_dtype(image: Tensor, dtype: Any = flambeau.float32) -> Tensor:
    """The image in another dtype, its values scaled to the range that images of that dtype have."""
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        top = float(flambeau.iinfo(dtype).max) + 1.0 - 1e-3
        return image.mul(top).to(dtype)
    top = flambeau.iinfo(image.dtype).max
    if dtype.is_floating_point:
        return image.to(dtype) / top
    new_top = flambeau.iinfo(dtype).max
    if top > new_top:
        return flambeau.div(image, (top + 1) // (new_top + 1), rounding_mode="floor").to(dtype)
    return image.to(dtype) * ((new_top + 1) // (top + 1))


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> Tensor:
    """(x - mean) / std, for each channel."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"[normalize] expected a tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"[normalize] expected a tensor of floats, got {tensor.dtype}")
    if tensor.ndim < 3:
        raise ValueError(f"[normalize] expected a tensor of (…, C, H, W), got {tensor.ndim} dimensions")
    if not inplace:
        tensor = tensor.clone()
    options = {"dtype": tensor.dtype, "device": tensor.device}
    center, scale = flambeau.as_tensor(mean, **options), flambeau.as_tensor(std, **options)
    if (scale == 0).any():
        raise ValueError(f"[normalize] expected deviations other than zero, got {std}")
    return tensor.sub_(center.view(-1, 1, 1) if center.ndim == 1 else center).div_(
        scale.view(-1, 1, 1) if scale.ndim == 1 else scale
    )


# ---------------------------------------------------------------------------------------------- geometry


def _resized(height: int, width: int, size: Any, max_size: int | None) -> tuple[int, int]:
    """The new size: given whole, or that of the shorter side."""
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) == 2:
        if max_size is not None:
            raise ValueError("[resize] expected max_size only with one size, got both sides")
        return sizes[0], sizes[1]
    short, long = min(height, width), max(height, width)
    new_short, new_long = sizes[0], int(sizes[0] * long / short)
    if max_size is not None:
        if max_size <= sizes[0]:
            raise ValueError(f"[resize] expected max_size above size, got {max_size} and {sizes[0]}")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if height <= width else (new_long, new_short)


def resize(
    img: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    mode = _mode(interpolation)
    pillow = _check(img, "resize")
    _, height, width = get_dimensions(img)
    new = _resized(height, width, size, max_size)
    if new == (height, width):
        return img
    if pillow:
        return img.resize(new[::-1], _PILLOW[mode])
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    options = {"align_corners": False, "antialias": bool(antialias)} if smooth else {}

    def scale(batch: Tensor) -> Tensor:
        result = F.interpolate(batch, size=new, mode=mode.value, **options)
        return result.clamp(0, 255) if mode is InterpolationMode.BICUBIC and img.dtype == flambeau.uint8 else result

    return _as_batch(img, scale)


def _as_batch(img: Tensor, function: Any) -> Tensor:
    """A function of float batches (N, C, H, W) applied to an image of any dtype and rank."""
    batch = img.reshape(-1, *img.shape[-3:]) if img.ndim >= 3 else img[None, None]
    whole = not batch.is_floating_point()
    result = function(batch.float() if whole else batch)
    result = result.round().to(img.dtype) if whole else result
    return result.reshape(*img.shape[:-3], *result.shape[-3:]) if img.ndim >= 3 else result[0, 0]


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of the image; beyond its border there is zero."""
    if _check(img, "crop"):
        return img.crop((left, top, left + width, top + height))
    h, w = img.shape[-2:]
    if left < 0 or top < 0 or left + width > w or top + height > h:
        inside = img[..., max(top, 0) : max(top + height, 0), max(left, 0) : max(left + width, 0)]
        missing = [
            max(min(-left, width), 0),
            max(left + width - max(w, left), 0),
            max(min(-top, height), 0),
            max(top + height - max(h, top), 0),
        ]
        return F.pad(inside, missing)
    return img[..., top : top + height, left : left + width]


def center_crop(img: Any, output_size: Any) -> Any:
    sizes = (
        [output_size] * 2 if isinstance(output_size, int) else list(output_size) * (2 if len(output_size) == 1 else 1)
    )
    crop_height, crop_width = sizes
    _, height, width = get_dimensions(img)
    if crop_width > width or crop_height > height:
        around = [
            max((crop_width - width) // 2, 0),
            max((crop_height - height) // 2, 0),
            max((crop_width - width + 1) // 2, 0),
            max((crop_height - height + 1) // 2, 0),
        ]
        img = pad(img, around, fill=0)
        _, height, width = get_dimensions(img)
    return crop(img, round((height - crop_height) / 2.0), round((width - crop_width) / 2.0), crop_height, crop_width)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Padding is one number, (left and right, top and bottom) or (left, top, right, bottom)."""
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(f"[pad] expected constant, edge, reflect or symmetric, got {padding_mode!r}")
    sides = [padding] if isinstance(padding, int) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"[pad] expected one, two or four numbers, got {len(sides)}")
    left, top, right, bottom = sides * (4 // len(sides))
    if _check(img, "pad"):
        if padding_mode == "constant":
            from PIL import ImageOps

            return ImageOps.expand(img, border=(left, top, right, bottom), fill=fill)
        return to_pil_image(pad(pil_to_tensor(img), [left, top, right, bottom], fill, padding_mode), img.mode)
    if padding_mode == "constant":
        return F.pad(img, [left, right, top, bottom], value=float(fill[0] if isinstance(fill, (tuple, list)) else fill))
    if padding_mode == "symmetric":
        height, width = img.shape[-2:]
        rows = [*range(top - 1, -1, -1), *range(height), *range(height - 1, height - bottom - 1, -1)]
        columns = [*range(left - 1, -1, -1), *range(width), *range(width - 1, width - right - 1, -1)]
        return img[..., rows, :][..., columns]
    mode = "replicate" if padding_mode == "edge" else "reflect"
    return _as_batch(img, lambda batch: F.pad(batch, [left, right, top, bottom], mode=mode))


def hflip(img: Any) -> Any:
    return img.transpose(0) if _check(img, "hflip") else img.flip(-1)


def vflip(img: Any) -> Any:
    return img.transpose(1) if _check(img, "vflip") else img.flip(-2)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """The four corners and the centre."""
    height, width = [size] * 2 if isinstance(size, int) else list(size) * (2 if len(size) == 1 else 1)
    _, whole_height, whole_width = get_dimensions(img)
    if width > whole_width or height > whole_height:
        raise ValueError(f"[five_crop] expected a size within {(whole_height, whole_width)}, got {(height, width)}")
    low, far = whole_height - height, whole_width - width
    corners = [crop(img, top, left, height, width) for top in (0, low) for left in (0, far)]
    return (*corners, center_crop(img, [height, width]))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    return five_crop(img, size) + five_crop(vflip(img) if vertical_flip else hflip(img), size)


def _inverse_affine(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Sequence[float]
) -> list[float]:
    """Six numbers that take a point of the result to a point of the source."""
    rotation, shear_x, shear_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    (cx, cy), (tx, ty) = center, translate
    a = math.cos(rotation - shear_y) / math.cos(shear_y)
    b = -math.cos(rotation - shear_y) * math.tan(shear_x) / math.cos(shear_y) - math.sin(rotation)
    c = math.sin(rotation - shear_y) / math.cos(shear_y)
    d = -math.sin(rotation - shear_y) * math.tan(shear_x) / math.cos(shear_y) + math.cos(rotation)
    m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0]
    m[2] = cx - m[0] * (cx + tx) - m[1] * (cy + ty)
    m[5] = cy - m[3] * (cx + tx) - m[4] * (cy + ty)
    return m


def _sample(img: Tensor, matrix: list[float], mode: InterpolationMode, fill: Any, size: tuple[int, int]) -> Tensor:
    """The image read at the points that an inverse affine map in pixels from the centre gives."""
    height, width = img.shape[-2:]
    new_height, new_width = size
    theta = flambeau.tensor(matrix).reshape(2, 3)
    xs = flambeau.linspace(-new_width * 0.5 + 0.5, new_width * 0.5 - 0.5, new_width)
    ys = flambeau.linspace(-new_height * 0.5 + 0.5, new_height * 0.5 - 0.5, new_height)
    points = flambeau.stack(
        [xs.expand(new_height, new_width), ys[:, None].expand(new_height, new_width), flambeau.ones(size)], dim=-1
    )
    return _read_at(img, points @ (theta.t() / flambeau.tensor([0.5 * width, 0.5 * height])), mode, fill)


def _read_at(img: Tensor, grid: Tensor, mode: InterpolationMode, fill: Any) -> Tensor:
    """The image read at points from -1 to 1; beyond it lies the fill colour."""

    def read(batch: Tensor) -> Tensor:
        places = grid.expand(batch.shape[0], *grid.shape).to(batch.dtype)
        if fill is None:
            return F.grid_sample(batch, places, mode=mode.value, padding_mode="zeros", align_corners=False)
        covered = flambeau.cat([batch, flambeau.ones_like(batch[:, :1])], dim=1)
        covered = F.grid_sample(covered, places, mode=mode.value, padding_mode="zeros", align_corners=False)
        result, mask = covered[:, :-1], covered[:, -1:]
        color = flambeau.tensor([fill] if isinstance(fill, (int, float)) else fill, dtype=batch.dtype).view(1, -1, 1, 1)
        if mode is InterpolationMode.NEAREST:
            return flambeau.where(mask < 0.5, color, result)
        return result * mask + (1 - mask) * color

    return _as_batch(img, read)


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
) -> Any:
    """Rotated against the clock, in degrees."""
    mode = _mode(interpolation)
    if _check(img, "rotate"):
        return img.rotate(angle, _PILLOW[mode], expand, center, fillcolor=fill)
    height, width = img.shape[-2:]
    offset = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    matrix = _inverse_affine(offset, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    size = (height, width)
    if expand:
        corners = flambeau.tensor(
            [[-0.5 * width, -0.5 * height, 1.0], [-0.5 * width, 0.5 * height, 1.0],
             [0.5 * width, 0.5 * height, 1.0], [0.5 * width, -0.5 * height, 1.0]]
        ) @ flambeau.tensor(matrix).reshape(2, 3).t()  # fmt: skip
        # Truncated after four digits, so that what is an integer but for rounding stays one.
        middle = (width * 0.5, height * 0.5)
        low = [math.floor(math.trunc((v + m) * 1e4) / 1e4) for v, m in zip(corners.amin(0).tolist(), middle)]
        high = [math.ceil(math.trunc((v + m) * 1e4) / 1e4) for v, m in zip(corners.amax(0).tolist(), middle)]
        new_width, new_height = high[0] - low[0], high[1] - low[1]
        size = (new_height, new_width)
    return _sample(img, matrix, mode, fill, size)


def affine(
    img: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    """Rotated clockwise in degrees, moved, scaled and sheared."""
    mode = _mode(interpolation)
    shears = [float(shear), 0.0] if isinstance(shear, (int, float)) else list(shear) + [0.0] * (2 - len(shear))
    pillow = _check(img, "affine")
    _, height, width = get_dimensions(img)
    if pillow:
        middle = [width * 0.5, height * 0.5] if center is None else center
        matrix = _inverse_affine(middle, angle, translate, scale, shears)
        return img.transform((width, height), 0, matrix, _PILLOW[mode], fillcolor=fill)
    offset = [0.0, 0.0] if center is None else [center[0] - width * 0.5, center[1] - height * 0.5]
    return _sample(img, _inverse_affine(offset, angle, translate, scale, shears), mode, fill, (height, width))


# ---------------------------------------------------------------------------------------------- colours


def _blend(first: Tensor, second: Tensor, ratio: float) -> Tensor:
    top = 1.0 if first.is_floating_point() else float(flambeau.iinfo(first.dtype).max)
    return (first * ratio + second * (1.0 - ratio)).clamp(0, top).to(first.dtype)


def _enhance(img: Any, name: str, factor: float) -> Any:
    from PIL import ImageEnhance

    return getattr(ImageEnhance, name)(img).enhance(factor)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """One channel of luma, or three equal ones."""
    if num_output_channels not in (1, 3):
        raise ValueError(f"[rgb_to_grayscale] expected one or three channels, got {num_output_channels}")
    if _check(img, "rgb_to_grayscale"):
        gray = img.convert("L")
        return gray if num_output_channels == 1 else gray.convert("RGB")
    if img.shape[-3] == 3:
        red, green, blue = img.unbind(-3)
        img = (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)
    elif img.shape[-3] != 1:
        raise TypeError(f"[rgb_to_grayscale] expected one or three channels, got {img.shape[-3]}")
    return img.expand(*img.shape[:-3], num_output_channels, *img.shape[-2:]).clone()


to_grayscale = rgb_to_grayscale


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    if brightness_factor < 0:
        raise ValueError(f"[adjust_brightness] expected a factor of at least zero, got {brightness_factor}")
    if _check(img, "adjust_brightness"):
        return _enhance(img, "Brightness", brightness_factor)
    return _blend(img, flambeau.zeros_like(img), brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    if contrast_factor < 0:
        raise ValueError(f"[adjust_contrast] expected a factor of at least zero, got {contrast_factor}")
    if _check(img, "adjust_contrast"):
        return _enhance(img, "Contrast", contrast_factor)
    gray = rgb_to_grayscale(img).to(img.dtype if img.is_floating_point() else flambeau.float32)
    return _blend(img, gray.mean(dim=(-3, -2, -1), keepdim=True), contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    if saturation_factor < 0:
        raise ValueError(f"[adjust_saturation] expected a factor of at least zero, got {saturation_factor}")
    if _check(img, "adjust_saturation"):
        return _enhance(img, "Color", saturation_factor)
    return img if img.shape[-3] == 1 else _blend(img, rgb_to_grayscale(img), saturation_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Hues turned by a part of the circle, from -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"[adjust_hue] expected a factor within -0.5 and 0.5, got {hue_factor}")
    if _check(img, "adjust_hue"):
        return to_pil_image(adjust_hue(pil_to_tensor(img), hue_factor), img.mode)
    if img.shape[-3] == 1:
        return img
    dtype = img.dtype
    hue, saturation, value = _to_hsv(convert_image_dtype(img, flambeau.float32))
    return convert_image_dtype(_to_rgb((hue + hue_factor) % 1.0, saturation, value), dtype)


def _to_hsv(img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    red, green, blue = img.unbind(-3)
    high, low = img.amax(-3), img.amin(-3)
    gray = high == low
    span = high - low
    divisor = flambeau.where(gray, flambeau.ones_like(high), span)
    to_red, to_green, to_blue = ((high - c) / divisor for c in (red, green, blue))
    hue = flambeau.where(
        high == red,
        to_blue - to_green,
        flambeau.where(high == green, 2.0 + to_red - to_blue, 4.0 + to_green - to_red),
    )
    saturation = span / flambeau.where(gray, flambeau.ones_like(high), high)
    return (hue / 6.0 + 1.0) % 1.0, saturation, high


def _to_rgb(hue: Tensor, saturation: Tensor, value: Tensor) -> Tensor:
    def channel(n: float) -> Tensor:
        k = (n + hue * 6.0) % 6.0
        return value - value * saturation * flambeau.minimum(k, 4.0 - k).clamp(0.0, 1.0)

    return flambeau.stack([channel(5.0), channel(3.0), channel(1.0)], dim=-3)


def invert(img: Any) -> Any:
    if _check(img, "invert"):
        from PIL import ImageOps

        return ImageOps.invert(img)
    return (1.0 if img.is_floating_point() else flambeau.iinfo(img.dtype).max) - img


def posterize(img: Any, bits: int) -> Any:
    if _check(img, "posterize"):
        from PIL import ImageOps

        return ImageOps.posterize(img, bits)
    return img & -(2 ** (8 - bits)) % 256


def solarize(img: Any, threshold: float) -> Any:
    if _check(img, "solarize"):
        from PIL import ImageOps

        return ImageOps.solarize(img, threshold)  # type: ignore[arg-type]
    return flambeau.where(img >= threshold, invert(img), img)


def autocontrast(img: Any) -> Any:
    """Each channel stretched to the full range."""
    if _check(img, "autocontrast"):
        from PIL import ImageOps

        return ImageOps.autocontrast(img)
    top = 1.0 if img.is_floating_point() else 255.0
    values = img.float() if not img.is_floating_point() else img
    low, high = values.amin((-2, -1), keepdim=True), values.amax((-2, -1), keepdim=True)
    scale = top / (high - low)
    flat = ~flambeau.isfinite(scale)
    low = flambeau.where(flat, flambeau.zeros_like(low), low)
    scale = flambeau.where(flat, flambeau.ones_like(scale), scale)
    return ((values - low) * scale).clamp(0, top).to(img.dtype)


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size) * (2 // len(kernel_size))
    spreads = [0.15 * size + 0.35 for size in sizes] if sigma is None else sigma
    spreads = [float(spreads)] * 2 if isinstance(spreads, (int, float)) else list(spreads) * (2 // len(spreads))
    if _check(img, "gaussian_blur"):
        return to_pil_image(gaussian_blur(pil_to_tensor(img), sizes, spreads), img.mode)

    def weights(size: int, spread: float) -> Tensor:
        half = (size - 1) * 0.5
        bell = flambeau.exp(-0.5 * (flambeau.linspace(-half, half, size) / spread) ** 2)
        return bell / bell.sum()

    kernel = flambeau.outer(weights(sizes[1], spreads[1]), weights(sizes[0], spreads[0]))

    def blur(batch: Tensor) -> Tensor:
        channels = batch.shape[1]
        filters = kernel.to(batch.dtype).expand(channels, 1, *kernel.shape)
        border = [sizes[0] // 2, sizes[0] // 2, sizes[1] // 2, sizes[1] // 2]
        return F.conv2d(F.pad(batch, border, mode="reflect"), filters, groups=channels)

    return _as_batch(img, blur)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> Tensor:
    """A rectangle overwritten with a value."""
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """0 gives a smoothed image, 1 the image, more a sharper one."""
    if sharpness_factor < 0:
        raise ValueError(f"[adjust_sharpness] expected a factor of at least 0, got {sharpness_factor}")
    if _check(img, "adjust_sharpness"):
        return _enhance(img, "Sharpness", sharpness_factor)
    if img.shape[-1] <= 2 or img.shape[-2] <= 2:
        return img
    kernel = flambeau.ones(3, 3)
    kernel[1, 1] = 5.0

    def soften(batch: Tensor) -> Tensor:
        filters = (kernel / kernel.sum()).to(batch.dtype).expand(batch.shape[1], 1, 3, 3)
        result = batch.clone()
        result[..., 1:-1, 1:-1] = F.conv2d(batch, filters, groups=batch.shape[1])
        return result

    return _blend(img, _as_batch(img, soften), sharpness_factor)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """`gain * img ** gamma`, on values from 0 to 1."""
    if gamma < 0:
        raise ValueError(f"[adjust_gamma] expected gamma of at least 0, got {gamma}")
    if _check(img, "adjust_gamma"):
        table = [int((255 + 1 - 1e-3) * gain * pow(x / 255.0, gamma)) for x in range(256)]
        mode = img.mode
        rgb = img.convert("RGB")
        return rgb.point([min(255, x) for x in table] * 3).convert(mode)
    values = img if img.is_floating_point() else convert_image_dtype(img, flambeau.float32)
    return convert_image_dtype((gain * values**gamma).clamp(0, 1), img.dtype)


def equalize(img: Any) -> Any:
    """Each channel with as equal a histogram as possible."""
    if _check(img, "equalize"):
        from PIL import ImageOps

        return ImageOps.equalize(img)
    if img.dtype != flambeau.uint8:
        raise TypeError(f"[equalize] expected an image of uint8, got {img.dtype}")

    def channel(plane: Tensor) -> Tensor:
        histogram = flambeau.bincount(plane.reshape(-1), minlength=256)
        counted = histogram[histogram != 0]
        step = int(counted[:-1].sum()) // 255
        if step == 0:
            return plane
        table = (histogram.cumsum(0) + step // 2) // step
        table = F.pad(table, [1, 0])[:-1].clamp(0, 255)
        return table[plane.to(flambeau.int64)].to(flambeau.uint8)

    planes = img.reshape(-1, *img.shape[-2:])
    return flambeau.stack([channel(plane) for plane in planes]).reshape(img.shape) if len(planes) else img


def _perspective_coefficients(startpoints: Any, endpoints: Any) -> list[float]:
    """Eight numbers of the projective map that takes each end point to its start point."""
    rows = []
    for (x, y), (u, v) in zip(endpoints, startpoints):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    values = flambeau.tensor(startpoints, dtype=flambeau.float64).reshape(8)
    solution = flambeau.linalg.lstsq(flambeau.tensor(rows, dtype=flambeau.float64), values[:, None]).solution
    return solution.squeeze(1).to(flambeau.float32).tolist()


def perspective(
    img: Any, startpoints: Any, endpoints: Any, interpolation: Any = InterpolationMode.BILINEAR, fill: Any = None
) -> Any:
    """The image projected so that the start points lie at the end points."""
    mode, coefficients = _mode(interpolation), _perspective_coefficients(startpoints, endpoints)
    if _check(img, "perspective"):
        return img.transform(img.size, 2, coefficients, _PILLOW[mode], fillcolor=fill)
    height, width = img.shape[-2:]
    a, b, c, d, e, f, g, h = coefficients
    x = (flambeau.arange(width) + 0.5).expand(height, width)
    y = (flambeau.arange(height) + 0.5)[:, None].expand(height, width)
    below = g * x + h * y + 1.0
    grid = flambeau.stack(
        [(a * x + b * y + c) / below / (width * 0.5) - 1.0, (d * x + e * y + f) / below / (height * 0.5) - 1.0], -1
    )
    return _read_at(img, grid, mode, fill)
