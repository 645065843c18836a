"""Transforms of images: tensors of (…, C, H, W), and Pillow's images where Pillow is installed."""

from typing import Any

from flambeau.vision.transforms.autoaugment import *  # noqa: F403
from flambeau.vision.transforms.functional import InterpolationMode  # noqa: F401
from flambeau.vision.transforms.transforms import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name in ("v2", "transforms"):
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
