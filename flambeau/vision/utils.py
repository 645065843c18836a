"""Several images in one, image files, and drawings of boxes, masks and keypoints."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau import Tensor

__all__ = ["draw_bounding_boxes", "draw_keypoints", "draw_segmentation_masks", "make_grid", "save_image"]


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


# ---------------------------------------------------------------- drawings


def _colors(colors: Any, count: int) -> list[Any]:
    """A colour for each object; by default, as different ones as there are objects."""
    if colors is None:
        palette = (2**25 - 1, 2**15 - 1, 2**21 - 1)
        return [tuple((i * p) % 255 for p in palette) for i in range(count)]
    colors = [colors] * count if isinstance(colors, (str, tuple)) else list(colors)
    if len(colors) < count:
        raise ValueError(f"[draw] expected a colour for each of {count} objects, got {len(colors)}")
    return colors[:count]


def _checked_image(op: str, image: Tensor) -> Any:
    if not isinstance(image, Tensor) or image.dim() != 3:
        raise ValueError(f"[{op}] expected an image (C, H, W), got {getattr(image, 'shape', type(image).__name__)}")
    if image.size(0) not in (1, 3):
        raise ValueError(f"[{op}] expected one or three channels, got {image.size(0)}")
    if not (image.dtype is flambeau.uint8 or image.is_floating_point()):
        raise ValueError(f"[{op}] expected uint8 or a floating dtype, got {image.dtype}")
    return image.expand(3, -1, -1) if image.size(0) == 1 else image


def _on_pillow(image: Tensor, paint: Any) -> Tensor:
    """What a function paints on the image, in the image's dtype."""
    from PIL import ImageDraw

    from flambeau.vision.transforms.functional import convert_image_dtype, pil_to_tensor, to_pil_image

    floating = image.is_floating_point()
    canvas = to_pil_image(convert_image_dtype(image, flambeau.uint8) if floating else image)
    paint(canvas, ImageDraw)
    result = pil_to_tensor(canvas)
    return convert_image_dtype(result, image.dtype) if floating else result


@flambeau.no_grad()
def draw_bounding_boxes(
    image: Tensor,
    boxes: Tensor,
    labels: list[str | None] | None = None,
    colors: Any = None,
    fill: bool | None = False,
    width: int = 1,
    font: str | None = None,
    font_size: int | None = None,
    label_colors: Any = None,
    label_background_colors: Any = None,
    fill_labels: bool = False,
) -> Tensor:
    """The image with boxes (x1, y1, x2, y2) drawn on it, and labels in their corners."""
    image = _checked_image("draw_bounding_boxes", image)
    if boxes.numel() == 0:
        return image
    if bool((boxes[:, 0] > boxes[:, 2]).any()) or bool((boxes[:, 1] > boxes[:, 3]).any()):
        raise ValueError("[draw_bounding_boxes] expected boxes with x1 <= x2 and y1 <= y2")
    names = labels or [None] * len(boxes)
    if len(names) != len(boxes):
        raise ValueError(f"[draw_bounding_boxes] expected a label for each of {len(boxes)} boxes, got {len(names)}")
    lines = _colors(colors, len(boxes))
    texts = _colors(label_colors, len(boxes)) if label_colors is not None else lines

    def paint(canvas: Any, draw_module: Any) -> None:
        from PIL import ImageColor, ImageFont

        draw = draw_module.Draw(canvas, "RGBA" if fill else None)
        letters = ImageFont.load_default() if font is None else ImageFont.truetype(font, font_size or 10)
        for box, color, name, text in zip(boxes.to(flambeau.int64).tolist(), lines, names, texts):
            rgb = ImageColor.getrgb(color) if isinstance(color, str) else tuple(color)
            draw.rectangle(box, width=width, outline=color, fill=(*rgb[:3], 100) if fill else None)
            if name is not None:
                draw.text((box[0] + width + 1, box[1] + width + 1), name, fill=text, font=letters)

    return _on_pillow(image, paint)


@flambeau.no_grad()
def draw_segmentation_masks(image: Tensor, masks: Tensor, alpha: float = 0.8, colors: Any = None) -> Tensor:
    """The image with boolean masks (masks, H, W) in colours over it."""
    image = _checked_image("draw_segmentation_masks", image)
    masks = masks[None] if masks.dim() == 2 else masks
    if masks.dtype is not flambeau.bool or masks.dim() != 3 or masks.shape[-2:] != image.shape[-2:]:
        raise ValueError(f"[draw_segmentation_masks] expected boolean masks of {tuple(image.shape[-2:])}, got {masks.dtype} {tuple(masks.shape)}")  # fmt: skip
    if masks.numel() == 0:
        return image
    from PIL import ImageColor

    painted = image.detach().clone()
    for mask, color in zip(masks, _colors(colors, len(masks))):
        rgb = flambeau.tensor(ImageColor.getrgb(color) if isinstance(color, str) else color)
        rgb = rgb / 255 if image.is_floating_point() else rgb
        painted[:, mask] = rgb.to(image.dtype)[:, None]
    covered = masks.any(0)
    blended = (image * (1 - alpha) + painted * alpha).to(image.dtype)
    return flambeau.where(covered, blended, image)


@flambeau.no_grad()
def draw_keypoints(
    image: Tensor,
    keypoints: Tensor,
    connectivity: list[tuple[int, int]] | None = None,
    colors: Any = None,
    radius: int = 2,
    width: int = 3,
    visibility: Tensor | None = None,
) -> Tensor:
    """The image with points (instances, points, 2) as discs on it, and lines between connected ones."""
    image = _checked_image("draw_keypoints", image)
    if keypoints.dim() != 3:
        raise ValueError(
            f"[draw_keypoints] expected points of shape (instances, points, 2), got {tuple(keypoints.shape)}"
        )
    shown = flambeau.ones(keypoints.shape[:2], dtype=flambeau.bool) if visibility is None else visibility.bool()
    shown = shown.reshape(keypoints.shape[:2]).tolist()

    def paint(canvas: Any, draw_module: Any) -> None:
        draw = draw_module.Draw(canvas)
        for points, visible in zip(keypoints[..., :2].to(flambeau.int64).tolist(), shown):
            for (x, y), seen in zip(points, visible):
                if seen:
                    draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colors or "red")
            for start, end in connectivity or ():
                if visible[start] and visible[end]:
                    draw.line((*points[start], *points[end]), width=width)

    return _on_pillow(image, paint)
