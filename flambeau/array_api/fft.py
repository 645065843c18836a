"""The Fourier transforms of the array API standard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau import Tensor

Axes = Sequence[int] | None


def _along_one(name: str) -> Callable[..., Tensor]:
    """A transform over one axis."""
    function: Any = getattr(fl.fft, name)

    def transform(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return function(x, n, axis, norm)

    transform.__name__ = transform.__qualname__ = name
    return transform


def _along_several(name: str) -> Callable[..., Tensor]:
    """A transform over several axes."""
    function: Any = getattr(fl.fft, name)

    def transform(x: Tensor, /, *, s: Axes = None, axes: Axes = None, norm: str = "backward") -> Tensor:
        return function(x, s, axes, norm)

    transform.__name__ = transform.__qualname__ = name
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(_along_one, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_along_several, ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    return fl.fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    return fl.fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: int | Axes = None) -> Tensor:
    return fl.fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Axes = None) -> Tensor:
    return fl.fft.ifftshift(x, axes)
