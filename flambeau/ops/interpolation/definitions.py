"""Sampling at grid points and resizing in terms of primitives.

A point is a coordinate for each axis. Each axis has a few taps, a position and a weight; the value at a point is the sum
over all combinations of one tap for each axis. The points of a resized image are a grid, so that one axis after the other is
resized.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.rules import definition

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


@definition("_grid_sampler_backward")
def grid_sampler_backward(
    grad: Any, input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """The derivative of the definition, which runs with autograd although this one was called below it."""
    from flambeau._ops import AUTOGRAD
    from flambeau.ops.retrace import retrace

    excluded = fl._C._local_keys()[1]
    fl._C._swap_excluded_keys(excluded & ~(1 << AUTOGRAD))
    try:
        with fl.no_grad():
            gradients = retrace(
                lambda image, places: grid_sampler(image, places, interpolation_mode, padding_mode, align_corners),
                (input, grid), (True, True), grad,
            )  # fmt: skip
    finally:
        fl._C._swap_excluded_keys(excluded)
    return tuple(fl.zeros_like(x) if g is None else g for g, x in zip(gradients, (input, grid)))


# ---------------------------------------------------------------- resizing

_REACH = {"linear": 1.0, "cubic": 2.0, "lanczos": 3.0}  # of an antialiasing filter, in input elements


def _step(inputs: int, outputs: int, align: bool, factor: float | None) -> float:
    """Input elements between two neighbours of the output."""
    if align:
        return (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1.0 / factor if factor else inputs / outputs


def _convolution_kernel(x: Any, a: float) -> Any:
    x = x.abs()
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return fl.where(x < 1, near, fl.where(x < 2, far, fl.zeros_like(x)))


def _filter(mode: str, x: Any) -> Any:
    if mode == "linear":
        return (1 - x.abs()).clamp_min(0)
    if mode == "cubic":
        return _convolution_kernel(x, -0.5)
    turn = x * math.pi
    square = fl.where(x == 0, fl.ones_like(x), turn * turn)
    value = fl.where(x == 0, fl.ones_like(x), 3 * turn.sin() * (turn / 3).sin() / square)
    return fl.where(x.abs() < 3, value, fl.zeros_like(x))


def _antialiased(place: Any, inputs: int, step: float, mode: str) -> list[tuple[Any, Any]]:
    reach = _REACH[mode] * max(step, 1.0)
    count = min(math.ceil(reach) * 2 + 1, max(inputs, 1))
    center = step * (place + 0.5)
    first = (center - reach + 0.5).clamp_min(0).trunc()
    end = (center + reach + 0.5).trunc().clamp(max=inputs)
    places = [first + t for t in range(count)]
    scale = 1 / max(step, 1.0)
    weights = [fl.where(at < end, _filter(mode, (at - center + 0.5) * scale), fl.zeros_like(at)) for at in places]
    total = fl.stack(weights).sum(0)
    some = fl.where(total == 0, fl.ones_like(total), total)
    return [(at, w / some) for at, w in zip(places, weights)]


def _axis_taps(
    inputs: int, outputs: int, mode: str, align: bool, factor: float | None, antialias: bool, dtype: Any, device: Any
) -> list[tuple[Any, Any]]:
    """For each tap of an axis: the input element of each output element, and its weight; None stands for 1."""
    place = fl.arange(outputs, device=device)
    if mode in ("nearest", "nearest-exact"):
        scale = fl.full((), _step(inputs, outputs, False, factor), device=device)
        at = ((place.float() + (0.0 if mode == "nearest" else 0.5)) * scale).floor()
        return [(at.long().clamp(max=inputs - 1), None)]
    place = place.to(dtype)
    step = _step(inputs, outputs, align, factor)
    if antialias:
        taps = _antialiased(place, inputs, step, mode)
    else:
        at = step * place if align else step * (place + 0.5) - 0.5
        if mode == "linear":
            at = place if inputs == outputs else at.clamp_min(0)
        low = at.floor().clamp(max=inputs - 1)
        t = (at - low).clamp(0, 1)
        if mode == "linear":
            taps = [(low, 1 - t), (low + 1, t)]
        else:
            taps = [(low + (k - 1), w) for k, w in enumerate(_cubic(t))]
    return [(at.long().clamp(0, inputs - 1), weight) for at, weight in taps]


def _axes(
    inputs: Sequence[int], outputs: Sequence[int], align: bool, factors: Any, *options: Any
) -> Iterator[tuple[int, list[tuple[Any, Any]]]]:
    """The axes that change, as dimensions of the image, with their taps."""
    mode, antialias, dtype, device = options
    for axis, (n, m) in enumerate(zip(inputs, outputs)):
        factor = factors[axis] if factors is not None else None
        if n != m or (factor not in (None, 1.0)):
            yield 2 + axis, _axis_taps(n, m, mode, align, factor, antialias, dtype, device)


def _shaped(weight: Any, dim: int, dims: int) -> Any:
    return weight.reshape([-1 if d == dim else 1 for d in range(dims)])


def _computed_in(image: Any, mode: str) -> Any:
    if not image.is_floating_point() and not mode.startswith("nearest"):
        raise NotImplementedError(f"resizing {image.dtype} by mode {mode!r}")
    return image.dtype if mode.startswith("nearest") or image.dtype is fl.float64 else fl.float32


@definition("_interpolate")
def interpolate(
    self: Any, output_size: Sequence[int], mode: str, align_corners: bool, scale_factors: Any, antialias: bool
) -> Any:
    dtype = _computed_in(self, mode)
    image = self.to(dtype)
    options = mode, antialias, dtype, self.device
    for dim, taps in _axes(self.shape[2:], output_size, align_corners, scale_factors, *options):
        parts = [
            part if weight is None else part * _shaped(weight, dim, self.dim())
            for part, weight in ((fl.index_select(image, dim, at), weight) for at, weight in taps)
        ]
        image = sum(parts[1:], parts[0])
    return image.to(self.dtype, copy=image is self)


@definition("_interpolate_backward")
def interpolate_backward(
    grad: Any, input_size: Sequence[int], mode: str, align_corners: bool, scale_factors: Any, antialias: bool
) -> Any:
    dtype = fl.float64 if grad.dtype is fl.float64 else fl.float32
    image = grad.to(dtype)
    axes = _axes(input_size[2:], grad.shape[2:], align_corners, scale_factors, mode, antialias, dtype, grad.device)
    for dim, taps in axes:
        size = [input_size[d] if d == dim else n for d, n in enumerate(image.shape)]
        total = fl.zeros(size, dtype=dtype, device=grad.device)
        for at, weight in taps:
            part = image if weight is None else image * _shaped(weight, dim, grad.dim())
            total = fl.index_add(total, dim, at, part)
        image = total
    return image.to(grad.dtype, copy=image is grad)
