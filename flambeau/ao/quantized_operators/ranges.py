"""Ranges of values to put a grid on, chosen for the least error."""

from __future__ import annotations

import flambeau as fl
from flambeau import Tensor

__all__ = ["choose_qparams_optimized"]


def _error(x: Tensor, low: float, high: float, bits: int) -> float:
    """The norm of what rounding to a grid between two values loses."""
    top = 2**bits - 1
    scale = (high - low) / top
    inverse = 1.0 / scale if scale else 0.0
    places = ((x - low) * inverse).round().clamp(0, top)
    return float((x - (places * scale + low)).norm())


def choose_qparams_optimized(
    input: Tensor, numel: int, n_bins: int, ratio: float, bit_width: int
) -> tuple[Tensor, Tensor]:
    """The greatest and the least value of the grid: steps from either end while the error falls."""
    x = input.reshape(-1)[:numel].float()
    if numel < 0 or numel > input.numel():
        raise RuntimeError(
            f"[choose_qparams_optimized] expected up to {input.numel()} elements, got numel {numel}: "
            "numel is out of the bound of input tensor"
        )
    low, high = float(x.min()), float(x.max())
    step, best = (high - low) / n_bins, _error(x, low, high, bit_width)
    at_low, at_high = low, high
    fewest = int(n_bins * (1 - ratio))
    for _ in range(n_bins):
        if (at_high - at_low) / step <= n_bins - fewest if step else True:
            break
        losses = _error(x, at_low + step, at_high, bit_width), _error(x, at_low, at_high - step, bit_width)
        if losses[0] < losses[1]:
            at_low += step
        else:
            at_high -= step
        if min(losses) < best:
            best, low, high = min(losses), at_low, at_high
    return fl.tensor([high]), fl.tensor([low])
