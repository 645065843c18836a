"""Vision: models with torchvision's names in their state dicts, transforms, datasets of local files, image grids.

Under `flambeau run` and `flambeau.as_torch`, `import torchvision` means this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.28.0+flambeau"
_MODULES = ("datasets", "io", "models", "ops", "transforms", "tv_tensors", "utils")
_backend = "PIL"


def set_image_backend(backend: str) -> None:
    """Which library reads image files: only Pillow here."""
    if backend != "PIL":
        raise ValueError(f"[set_image_backend] expected 'PIL', got {backend!r}")


def get_image_backend() -> str:
    return _backend


def disable_beta_transforms_warning() -> None: ...


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
