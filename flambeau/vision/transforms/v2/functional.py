"""The functions behind the second version of the transforms."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.vision.transforms import functional as _first
from flambeau.vision.transforms.functional import *  # noqa: F403

horizontal_flip, vertical_flip = _first.hflip, _first.vflip
get_size = lambda inpt: _first.get_dimensions(inpt)[1:]  # noqa: E731


def to_image(inpt: Any) -> flambeau.Tensor:
    """A tensor (C, H, W) with the values of a Pillow image, an array (H, W, C) or a tensor."""
    if isinstance(inpt, flambeau.Tensor):
        return inpt
    if _first._is_pillow(inpt):
        return _first.pil_to_tensor(inpt)
    array = inpt[:, :, None] if inpt.ndim == 2 else inpt
    return flambeau.from_numpy(array).permute(2, 0, 1).contiguous()


def to_dtype(inpt: flambeau.Tensor, dtype: Any = flambeau.float32, scale: bool = False) -> flambeau.Tensor:
    return _first.convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)


def grayscale_to_rgb(image: flambeau.Tensor) -> flambeau.Tensor:
    return _first.rgb_to_grayscale(image, 3) if image.shape[-3] == 1 else image
