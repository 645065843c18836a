"""Functions of the second version: over images, videos, masks and boxes alike.

A function looks at the kind of its first argument. Images and videos go through the first version's function, masks too, but
with the nearest pixel and without changes of colour, and boxes through a function of their corners.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import Tensor
from flambeau.vision import tv_tensors
from flambeau.vision.ops.boxes import box_convert
from flambeau.vision.transforms import functional as F
from flambeau.vision.transforms.functional import (  # noqa: F401
    InterpolationMode,
    pil_to_tensor,
    to_pil_image,
    to_tensor,
)

_Canvas = tuple[int, int]


# ---------------------------------------------------------------- what inputs are


def get_size(inpt: Any) -> list[int]:
    """[height, width] of an image, a mask or the canvas of boxes."""
    if isinstance(inpt, tv_tensors.BoundingBoxes):
        return list(inpt.canvas_size)
    if isinstance(inpt, Tensor):
        return list(inpt.shape[-2:])
    return F.get_dimensions(inpt)[1:]


def get_dimensions(inpt: Any) -> list[int]:
    """[channels, height, width]."""
    return F.get_dimensions(_plain(inpt))


def get_num_channels(inpt: Any) -> int:
    return get_dimensions(inpt)[0]


get_image_num_channels = get_num_channels


def get_image_size(inpt: Any) -> list[int]:
    return get_size(inpt)[::-1]


def _plain(inpt: Any) -> Any:
    return inpt.as_subclass(Tensor) if isinstance(inpt, tv_tensors.TVTensor) else inpt


def is_pure_tensor(inpt: Any) -> bool:
    return isinstance(inpt, Tensor) and not isinstance(inpt, tv_tensors.TVTensor)


def _like(result: Any, inpt: Any) -> Any:
    return tv_tensors.wrap(result, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else result


# ---------------------------------------------------------------- geometry


def convert_bounding_box_format(
    inpt: Any, old_format: Any = None, new_format: Any = None, inplace: bool = False
) -> Any:
    """Boxes in another format; `old_format` is given for plain tensors only."""
    new = tv_tensors.BoundingBoxFormat[new_format.upper()] if isinstance(new_format, str) else new_format
    if isinstance(inpt, tv_tensors.BoundingBoxes):
        if old_format is not None:
            raise ValueError("[convert_bounding_box_format] expected no old_format, which BoundingBoxes know")
        converted = box_convert(_plain(inpt), inpt.format.value.lower(), new.value.lower())
        return tv_tensors.wrap(converted, like=inpt, format=new)
    old = tv_tensors.BoundingBoxFormat[old_format.upper()] if isinstance(old_format, str) else old_format
    return box_convert(inpt, old.value.lower(), new.value.lower())


def clamp_bounding_boxes(inpt: Any, format: Any = None, canvas_size: Any = None, clamping_mode: Any = "auto") -> Any:
    """Boxes within their canvas."""
    if not isinstance(inpt, tv_tensors.BoundingBoxes):
        boxes = tv_tensors.BoundingBoxes(inpt, format=format, canvas_size=canvas_size)
        return _plain(clamp_bounding_boxes(boxes))
    return _boxes(inpt, lambda corners, canvas: (corners, canvas))


def _boxes(inpt: Any, function: Callable[[Tensor, _Canvas], tuple[Tensor, _Canvas]]) -> Any:
    """Boxes whose corners a function moves, clamped to the new canvas."""
    form = inpt.format.value.lower()
    plain = _plain(inpt)
    whole = not plain.is_floating_point()
    corners = box_convert(plain.to(flambeau.float32) if whole else plain, form, "xyxy")
    corners, canvas = function(corners, inpt.canvas_size)
    limits = flambeau.tensor([canvas[1], canvas[0]] * 2, dtype=corners.dtype, device=corners.device)
    corners = flambeau.min(corners.clamp(min=0), limits)
    result = box_convert(corners, "xyxy", form)
    return tv_tensors.wrap(result.round().to(plain.dtype) if whole else result, like=inpt, canvas_size=canvas)


def _moved(corners: Tensor, forward: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """The boxes around the four corners of boxes after a map."""
    x, y = corners[:, [0, 2, 2, 0]], corners[:, [1, 1, 3, 3]]
    x, y = forward(x, y)
    return flambeau.stack((x.amin(1), y.amin(1), x.amax(1), y.amax(1)), 1)


def _affine_forward(inverse: list[float], old: _Canvas, new: _Canvas) -> Callable[[Tensor, Tensor], Any]:
    """From points of the source to points of the result, for an inverse map in pixels from the centres."""
    a, b, c, d, e, f = inverse
    determinant = a * e - b * d

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = x - old[1] * 0.5 - c, y - old[0] * 0.5 - f
        return (e * u - b * v) / determinant + new[1] * 0.5, (a * v - d * u) / determinant + new[0] * 0.5

    return forward


def _mask(inpt: Any, function: Callable[[Tensor], Tensor]) -> Any:
    plain = _plain(inpt)
    return tv_tensors.wrap(function(plain[None])[0] if plain.dim() == 2 else function(plain), like=inpt)


def _by_kind(inpt: Any, image: Callable[[Any], Any], mask: Callable[[Tensor], Tensor], boxes: Any) -> Any:
    if isinstance(inpt, tv_tensors.BoundingBoxes):
        return _boxes(inpt, boxes)
    if isinstance(inpt, tv_tensors.Mask):
        return _mask(inpt, mask)
    return _like(image(_plain(inpt)), inpt)


def horizontal_flip(inpt: Any) -> Any:
    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        return flambeau.stack((canvas[1] - c[:, 2], c[:, 1], canvas[1] - c[:, 0], c[:, 3]), 1), canvas

    return _by_kind(inpt, F.hflip, F.hflip, boxes)


def vertical_flip(inpt: Any) -> Any:
    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        return flambeau.stack((c[:, 0], canvas[0] - c[:, 3], c[:, 2], canvas[0] - c[:, 1]), 1), canvas

    return _by_kind(inpt, F.vflip, F.vflip, boxes)


hflip, vflip = horizontal_flip, vertical_flip


def resize(
    inpt: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    if size is None:  # the longer side becomes max_size
        height, width = get_size(inpt)
        scale = (max_size or 0) / max(height, width)
        size, max_size = [int(height * scale), int(width * scale)], None

    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        new = F._resized(*canvas, size, max_size)
        across, down = new[1] / canvas[1], new[0] / canvas[0]
        return c * flambeau.tensor([across, down, across, down], dtype=c.dtype), new

    return _by_kind(
        inpt, lambda x: F.resize(x, size, interpolation, max_size, antialias),
        lambda x: F.resize(x, size, InterpolationMode.NEAREST, max_size), boxes,
    )  # fmt: skip


def crop(inpt: Any, top: int, left: int, height: int, width: int) -> Any:
    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        return c - flambeau.tensor([left, top, left, top], dtype=c.dtype), (height, width)

    def cropped(x: Any) -> Any:
        return F.crop(x, top, left, height, width)

    return _by_kind(inpt, cropped, cropped, boxes)


def center_crop(inpt: Any, output_size: Any) -> Any:
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size) * (2 // len(output_size))

    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        high, wide = (max(have, want) for have, want in zip(canvas, sizes))
        left, top = (max((want - have) // 2, 0) for have, want in zip(canvas[::-1], sizes[::-1]))
        shift = (round((wide - sizes[1]) / 2) - left, round((high - sizes[0]) / 2) - top)
        return c - flambeau.tensor([*shift, *shift], dtype=c.dtype), (sizes[0], sizes[1])

    return _by_kind(inpt, lambda x: F.center_crop(x, sizes), lambda x: F.center_crop(x, sizes), boxes)


def resized_crop(
    inpt: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    return resize(crop(inpt, top, left, height, width), size, interpolation, antialias=antialias)


def pad(inpt: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    sides = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = sides * (4 // len(sides))

    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        shifted = c + flambeau.tensor([left, top, left, top], dtype=c.dtype)
        return shifted, (canvas[0] + top + bottom, canvas[1] + left + right)

    color = 0 if fill is None else fill
    return _by_kind(
        inpt, lambda x: F.pad(x, padding, color, padding_mode), lambda x: F.pad(x, padding, color, padding_mode), boxes
    )


def affine(
    inpt: Any,
    angle: float,
    translate: Any,
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: Any = None,
) -> Any:
    shears = [float(shear), 0.0] if isinstance(shear, (int, float)) else [*shear, *[0.0] * (2 - len(shear))]

    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        offset = [0.0, 0.0] if center is None else [center[0] - canvas[1] * 0.5, center[1] - canvas[0] * 0.5]
        inverse = F._inverse_affine(offset, angle, translate, scale, shears)
        return _moved(c, _affine_forward(inverse, canvas, canvas)), canvas

    arguments = (angle, translate, scale, shears)
    return _by_kind(
        inpt, lambda x: F.affine(x, *arguments, interpolation, fill, center),
        lambda x: F.affine(x, *arguments, InterpolationMode.NEAREST, 0, center), boxes,
    )  # fmt: skip


def rotate(
    inpt: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Any = None,
    fill: Any = None,
) -> Any:
    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        offset = [0.0, 0.0] if center is None else [center[0] - canvas[1] * 0.5, center[1] - canvas[0] * 0.5]
        inverse = F._inverse_affine(offset, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
        new = tuple(F.rotate(flambeau.zeros(1, *canvas), angle, expand=True).shape[-2:]) if expand else canvas
        return _moved(c, _affine_forward(inverse, canvas, new)), new

    return _by_kind(
        inpt, lambda x: F.rotate(x, angle, interpolation, expand, center, fill),
        lambda x: F.rotate(x, angle, InterpolationMode.NEAREST, expand, center, 0), boxes,
    )  # fmt: skip


def perspective(
    inpt: Any,
    startpoints: Any,
    endpoints: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    fill: Any = None,
    coefficients: Any = None,
) -> Any:
    def boxes(c: Tensor, canvas: _Canvas) -> tuple[Tensor, _Canvas]:
        # The map from start to end points, the other way round from that of images.
        a, b, s, d, e, t, g, h = F._perspective_coefficients(endpoints, startpoints)

        def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            below = g * x + h * y + 1.0
            return (a * x + b * y + s) / below, (d * x + e * y + t) / below

        return _moved(c, forward), canvas

    return _by_kind(
        inpt, lambda x: F.perspective(x, startpoints, endpoints, interpolation, fill),
        lambda x: F.perspective(x, startpoints, endpoints, InterpolationMode.NEAREST, 0), boxes,
    )  # fmt: skip


# ---------------------------------------------------------------- colours, which leave masks and boxes alone


def _colour(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(inpt: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)):
            return inpt
        return _like(function(_plain(inpt), *args, **kwargs), inpt)

    return run


adjust_brightness, adjust_contrast, adjust_saturation, adjust_hue, adjust_sharpness, adjust_gamma = map(
    _colour,
    (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue, F.adjust_sharpness, F.adjust_gamma),
)
rgb_to_grayscale, to_grayscale, invert, posterize, solarize, autocontrast, equalize, gaussian_blur, erase = map(
    _colour,  # type: ignore[arg-type]
    (F.rgb_to_grayscale, F.to_grayscale, F.invert, F.posterize, F.solarize, F.autocontrast, F.equalize, F.gaussian_blur, F.erase),
)  # fmt: skip
normalize, five_crop, ten_crop = _colour(F.normalize), F.five_crop, F.ten_crop


@_colour
def grayscale_to_rgb(image: Any) -> Any:
    if not isinstance(image, Tensor):
        return image.convert("RGB")
    return image.expand(*image.shape[:-3], 3, *image.shape[-2:]) if image.shape[-3] == 1 else image


@_colour
def gaussian_noise(image: Tensor, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> Tensor:
    if not image.is_floating_point():
        raise ValueError(f"[gaussian_noise] expected a floating dtype, got {image.dtype}")
    noisy = image + mean + flambeau.randn_like(image) * sigma
    return noisy.clamp(0, 1) if clip else noisy


# ---------------------------------------------------------------- kinds and dtypes


def to_image(inpt: Any) -> Any:
    """An `Image` of a tensor, a Pillow image or an array (H, W, C)."""
    if not isinstance(inpt, Tensor) and hasattr(inpt, "__array_interface__") and not F._is_pillow(inpt):
        array = inpt if inpt.ndim == 3 else inpt[:, :, None]
        inpt = flambeau.from_numpy(array).permute(2, 0, 1).contiguous()
    return tv_tensors.Image(inpt)


def to_dtype(inpt: Any, dtype: Any = flambeau.float32, scale: bool = False) -> Any:
    """Another dtype; with `scale`, images and videos keep their meaning as colours."""
    if scale and not isinstance(inpt, (tv_tensors.Mask, tv_tensors.BoundingBoxes)):
        return _like(F.convert_image_dtype(_plain(inpt), dtype), inpt)
    return _like(_plain(inpt).to(dtype), inpt)


convert_image_dtype = functools.partial(to_dtype, scale=True)


def sanitize_bounding_boxes(
    bounding_boxes: Any, format: Any = None, canvas_size: Any = None, min_size: float = 1.0, min_area: float = 1.0
) -> tuple[Any, Tensor]:
    """The boxes that are not too small and lie within the canvas, and which those are."""
    boxes = bounding_boxes
    if not isinstance(boxes, tv_tensors.BoundingBoxes):
        boxes = tv_tensors.BoundingBoxes(boxes, format=format, canvas_size=canvas_size)
    corners = box_convert(_plain(boxes), boxes.format.value.lower(), "xyxy")
    width, height = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    valid = (width >= min_size) & (height >= min_size) & (width * height >= min_area) & (corners >= 0).all(-1)
    valid = valid & (corners[:, 2] <= boxes.canvas_size[1]) & (corners[:, 3] <= boxes.canvas_size[0])
    return _like(_plain(bounding_boxes)[valid], bounding_boxes), valid
