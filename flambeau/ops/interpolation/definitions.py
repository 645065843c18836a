"""Sampling at grid points in terms of primitives.

A point is a coordinate for each axis. Each axis has a few taps, a position and a weight; the value at a point is the sum
over all combinations of one tap for each axis.
"""

from __future__ import annotations

import itertools
from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition

definition.without(
    "a device without a kernel cannot resize",
    "_interpolate",
    "_interpolate_backward",
)
definition.without(
    "the derivative is taken through the definition of `grid_sampler_2d` instead",
    "_grid_sampler_backward",
)

NEAREST, CUBIC = 1, 2
BORDER, REFLECTION = 1, 2


def _clipped(at: Any, size: int) -> Any:
    top = fl.full_like(at, size - 1)
    return fl.where(at > 0, fl.where(at < top, at, top), fl.zeros_like(at))


def _reflected(at: Any, low: float, high: float) -> Any:
    """Positions mirrored at both ends until they lie between them."""
    if low == high:
        return fl.zeros_like(at)
    period = 2 * (high - low)
    extra = (at - low).abs()
    extra = extra - (extra / period).trunc().detach() * period
    return fl.where(extra <= period - extra, extra, period - extra) + low


def _padded(at: Any, size: int, padding: int, align: bool) -> Any:
    if padding == REFLECTION:
        at = _reflected(at, 0, size - 1) if align else _reflected(at, -0.5, size - 0.5)
    return at if padding == 0 else _clipped(at, size)


def _cubic(t: Any) -> list[Any]:
    """Weights of the four neighbours at a distance t from the second."""
    a = -0.75
    near = [((a + 2) * x - (a + 3)) * x * x + 1 for x in (t, 1 - t)]
    far = [((a * x - 5 * a) * x + 8 * a) * x - 4 * a for x in (t + 1, 2 - t)]
    return [far[0], near[0], near[1], far[1]]


def _taps(at: Any, size: int, mode: int, padding: int, align: bool) -> list[tuple[Any, Any]]:
    """Positions and weights along one axis; a tap outside has weight 0."""
    at = (at + 1) * (size - 1) / 2 if align else ((at + 1) * size - 1) / 2
    if mode != CUBIC:
        at = _padded(at, size, padding, align)
    if mode == NEAREST:
        taps = [(at.round(), fl.ones_like(at))]
    else:
        low = at.floor().detach()
        t = at - low
        if mode == CUBIC:
            taps = [(_padded(low + (k - 1), size, padding, align), w) for k, w in enumerate(_cubic(t))]
        else:
            taps = [(low, 1 - t), (low + 1, t)]
    axis_taps = []
    for x, weight in taps:
        inside = (x >= 0) & (x < size)
        axis_taps.append(
            (fl.where(inside, x, fl.zeros_like(x)).long(), fl.where(inside, weight, fl.zeros_like(weight)))
        )
    return axis_taps


@definition("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    sizes = input.shape[2:]
    places = grid.reshape(grid.shape[0], -1, len(sizes))
    # Coordinates name the last axis first.
    coordinates = places.flip(-1).unbind(-1)
    axes = [_taps(at, n, interpolation_mode, padding_mode, align_corners) for at, n in zip(coordinates, sizes)]
    flat = input.reshape(*input.shape[:2], -1)
    total: Any = None
    for taps in itertools.product(*axes):
        index, weight = taps[0]
        for n, (x, w) in zip(sizes[1:], taps[1:]):
            index, weight = index * n + x, weight * w
        values = flat.gather(2, index.unsqueeze(1).expand(-1, flat.shape[1], -1)) * weight.unsqueeze(1)
        total = values if total is None else total + values
    return total.reshape(*input.shape[:2], *grid.shape[1:-1])
