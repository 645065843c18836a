"""Transforms of images: tensors of (…, C, H, W), and Pillow's images where Pillow is installed."""

from flambeau.vision.transforms.functional import InterpolationMode  # noqa: F401
from flambeau.vision.transforms.transforms import *  # noqa: F403
