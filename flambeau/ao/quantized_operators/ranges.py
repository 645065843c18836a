"""Ranges of values to put a grid on, chosen for the least error."""

from __future__ import annotations

import flambeau as fl
from flambeau import Tensor

__all__ = ["choose_qparams_optimized"]


def _error(x: Tensor, low: float, high: float, bits: int) -> float:
    """The norm of what rounding to a grid between two values loses; scale and lowest value are stored in half precision."""
    top = 2**bits - 1
    low = float(fl.tensor(low).half())
    scale = float(fl.tensor((high - low) / top).half())
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
    at_low, at_high, here = low, high, best
    narrowest = int(n_bins * (1 - ratio)) * step
    while at_low + narrowest < at_high:
        without_low = _error(x, at_low + step, at_high, bit_width)
        without_high = _error(x, at_low, at_high - step, bit_width)
        if here < min(without_low, without_high, best):  # either step would make it worse
            best, low, high = here, at_low, at_high
        if without_low < without_high:
            at_low, here = at_low + step, without_low
        else:
            at_high, here = at_high - step, without_high
    return fl.tensor([high]), fl.tensor([low])
