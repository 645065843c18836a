"""Window functions of signal processing at the top level: `hann_window` and its relatives."""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops.record import composite

OPTIONS = "*, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False"


def _positions(name: str, length: int, periodic: bool, dtype: fl.dtype | None, options: dict) -> tuple[fl.Tensor, int]:
    """0, 1, ... and the number of steps from the first to the last sample of a symmetric window."""
    dtype = dtype or fl.get_default_dtype()
    if not dtype.is_floating_point:
        raise RuntimeError(f"[{name}] expected a floating dtype, got {dtype}: only floating point dtypes are supported")
    if length < 0:
        raise RuntimeError(f"[{name}] expected a length that is not negative, got {length}")
    return fl.arange(length, dtype=dtype, **options), (length if periodic else length - 1)


def _cosine_sum(
    name: str, length: int, periodic: bool, weights: tuple[float, ...], dtype: fl.dtype | None, options: Any
) -> fl.Tensor:
    """sum_k (-1)^k weights[k] cos(2 pi k n / steps)"""
    n, steps = _positions(name, length, periodic, dtype, options)
    if length <= 1:
        return fl.ones_like(n)
    total = fl.full_like(n, weights[0])
    for k, weight in enumerate(weights[1:], 1):
        total = total + fl.cos(n * (2 * math.pi * k / steps)) * (weight if k % 2 == 0 else -weight)
    return total


@composite(f"hann_window(int window_length, bool periodic=True, {OPTIONS}) -> Tensor")
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: fl.dtype | None = None, **options: Any
) -> fl.Tensor:
    return _cosine_sum("hann_window", window_length, periodic, (0.5, 0.5), dtype, options)


@composite(
    f"hamming_window(int window_length, bool periodic=True, float alpha=0.54, float beta=0.46, {OPTIONS}) -> Tensor"
)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: fl.dtype | None = None,
    **options: Any,
) -> fl.Tensor:
    return _cosine_sum("hamming_window", window_length, periodic, (alpha, beta), dtype, options)


@composite(f"blackman_window(int window_length, bool periodic=True, {OPTIONS}) -> Tensor")
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: fl.dtype | None = None, **options: Any
) -> fl.Tensor:
    return _cosine_sum("blackman_window", window_length, periodic, (0.42, 0.5, 0.08), dtype, options)


@composite(f"bartlett_window(int window_length, bool periodic=True, {OPTIONS}) -> Tensor")
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: fl.dtype | None = None, **options: Any
) -> fl.Tensor:
    n, steps = _positions("bartlett_window", window_length, periodic, dtype, options)
    if window_length <= 1:
        return fl.ones_like(n)
    return 1 - fl.abs(n * (2 / steps) - 1)


@composite(f"kaiser_window(int window_length, bool periodic=True, float beta=12.0, {OPTIONS}) -> Tensor")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: fl.dtype | None = None, **options: Any
) -> fl.Tensor:
    n, steps = _positions("kaiser_window", window_length, periodic, dtype, options)
    if window_length <= 1:
        return fl.ones_like(n)
    x = n * (2 / steps) - 1
    return fl.i0(beta * fl.sqrt(fl.clamp_min(1 - x * x, 0))) / fl.i0(
        fl.scalar_tensor(beta, dtype=n.dtype, device=n.device)
    )
