"""The second version of the transforms, as far as images go: the first one's, with what was renamed or added.

Boxes, masks and videos, which the second version transforms along with the image, are not handled.
"""

from __future__ import annotations

from typing import Any

import flambeau
import flambeau.vision.transforms.v2.functional as functional
from flambeau import nn
from flambeau.vision.transforms.functional import InterpolationMode  # noqa: F401
from flambeau.vision.transforms.transforms import *  # noqa: F403
from flambeau.vision.transforms.transforms import Compose as _Compose

__all__ = ["Compose", "Identity", "Transform", "ToDtype", "ToImage", "ToPureTensor", "functional"]


class Transform(nn.Module):
    """Base of transforms."""

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)


class Compose(_Compose):
    """Several transforms, one after another; what comes beside the image is passed through."""

    def __call__(self, *inputs: Any) -> Any:
        if len(inputs) == 1:
            return super().__call__(inputs[0])
        return (super().__call__(inputs[0]), *inputs[1:])


class Identity(Transform):
    def forward(self, *inputs: Any) -> Any:
        return inputs if len(inputs) > 1 else inputs[0]


class ToImage(Transform):
    """A tensor (C, H, W) of a Pillow image or an array (H, W, C), with the same values."""

    def forward(self, inpt: Any) -> flambeau.Tensor:
        return functional.to_image(inpt)


class ToDtype(Transform):
    """Another dtype; with scale, values in that dtype's range."""

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        super().__init__()
        self.dtype, self.scale = dtype, scale

    def forward(self, inpt: flambeau.Tensor) -> flambeau.Tensor:
        return functional.to_dtype(inpt, self.dtype, self.scale)


class ToPureTensor(Identity):
    """Images are plain tensors here already."""
