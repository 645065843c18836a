"""Whether Triton can compile kernels here: it takes the package, and a GPU that it knows."""

from __future__ import annotations

import functools
from importlib.util import find_spec

import flambeau


@functools.cache
def has_triton_package() -> bool:
    return find_spec("triton") is not None


def _capability() -> tuple[int, int]:
    return flambeau.cuda.get_device_capability() if flambeau.cuda.is_available() else (0, 0)


def has_triton() -> bool:
    return has_triton_package() and _capability() >= (7, 0)


def has_triton_tma() -> bool:
    """Whether kernels can use the tensor memory accelerator of Hopper and later."""
    return has_triton_package() and _capability() >= (9, 0)
