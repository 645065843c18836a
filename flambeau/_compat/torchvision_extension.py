"""`torchvision.extension` where torchvision's own Python source runs on flambeau.

The original loads two libraries that are compiled against PyTorch. Their operators are records here
(`flambeau/ops/vision`), and those for images are served by Pillow (`flambeau/vision/io.py`).
"""

from __future__ import annotations


def _load_library(lib_name: str) -> bool:
    if lib_name == "image":
        from flambeau.vision.io import register_operators

        register_operators()
    return lib_name in ("_C", "image")


def _has_ops() -> bool:
    return True


def _assert_has_ops() -> None: ...


def _check_cuda_version() -> int:
    """Of the CUDA with which the operators were compiled: none."""
    return -1
