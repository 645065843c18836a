"""Reductions, moments, scans, unique values and histograms in terms of primitives.

Counts sort, number the runs of equal values by a running sum, and add up by those numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops import complex_pairs
from flambeau.ops.rules import aten_parts, definition

definition.without(
    "a primitive",
    "cumprod",
)
definition("cumsum")(complex_pairs.by_parts("cumsum", (0,)))  # a primitive of real numbers


@definition("_search")
def _search(sequence: Any, values: Any, right: bool, int32: bool, sorter: Any = None) -> Any:
    """How many elements come before each value."""
    ordered = sequence if sorter is None else fl.gather(sequence, -1, sorter)
    ordered, sought = ordered.unsqueeze(-2) if ordered.dim() > 1 else ordered, values.unsqueeze(-1)
    count = fl.sum(ordered <= sought if right else ordered < sought, -1)
    return count.to(fl.int32) if int32 else count


def _extreme_at(self: Any, dim: int, keepdim: bool, largest: bool) -> Any:
    """The extreme along a dimension and its first index; NaN counts as the extreme."""
    best = fl.amax(self, dim, keepdim=True) if largest else fl.amin(self, dim, keepdim=True)
    is_extreme = fl.logical_or(self == best, self != self)
    n = self.shape[dim] if self.dim() else 1
    view = [1] * self.dim()
    if self.dim():
        view[dim] = n
    places = fl.where(is_extreme, fl.arange(n, device=self.device).reshape(view), n)
    first = fl.amin(places, dim, keepdim=True)
    return (best, first) if keepdim or not self.dim() else (best.squeeze(dim), first.squeeze(dim))


definition("max.dim")(lambda self, dim, keepdim=False: _extreme_at(self, dim, keepdim, True))
definition("min.dim")(lambda self, dim, keepdim=False: _extreme_at(self, dim, keepdim, False))


def _arg_extreme(self: Any, dim: int | None, keepdim: bool, largest: bool) -> Any:
    if dim is None:
        place = _extreme_at(self.reshape(-1), 0, False, largest)[1]
        return place.reshape([1] * self.dim()) if keepdim else place
    return _extreme_at(self, dim, keepdim, largest)[1]


definition("argmax")(lambda self, dim=None, keepdim=False: _arg_extreme(self, dim, keepdim, True))
definition("argmin")(lambda self, dim=None, keepdim=False: _arg_extreme(self, dim, keepdim, False))


def _moments(self: Any, dim: Any, correction: Any, keepdim: bool) -> tuple[Any, Any]:
    dims = [dim] if isinstance(dim, int) else list(dim) if dim else list(range(self.dim()))
    count = math.prod(self.shape[d] for d in dims)
    mean = fl.mean(self, dims, keepdim=True)
    spread = self - mean
    square = spread * spread if not self.is_complex() else fl.real(spread * spread.conj())
    divisor = max(count - (1 if correction is None else correction), 0)
    total = fl.sum(square, dims, keepdim=keepdim)
    return total / divisor, mean if keepdim else mean.reshape(total.shape)


def _moment_ops() -> None:
    for name, root, both in (
        ("var", False, False),
        ("std", True, False),
        ("var_mean", False, True),
        ("std_mean", True, True),
    ):

        def by(self: Any, dim: Any, correction: Any, keepdim: bool, root: bool = root, both: bool = both) -> Any:
            variance, mean = _moments(self, dim, correction, keepdim)
            value = fl.sqrt(variance) if root else variance
            return (value, mean) if both else value

        definition(name)(lambda self, unbiased=True, by=by: by(self, None, int(unbiased), False))
        definition(f"{name}.dim")(
            lambda self, dim=None, unbiased=True, keepdim=False, by=by: by(self, dim, int(unbiased), keepdim)
        )
        definition(f"{name}.correction")(
            lambda self, dim=None, *, correction=None, keepdim=False, by=by: by(self, dim, correction, keepdim)
        )


_moment_ops()


@definition("_logsumexp")
def _logsumexp(self: Any, dim: Sequence[int], keepdim: bool = False) -> Any:
    self = self.to(fl.get_default_dtype()) if self.dtype is fl.bool else self
    high = fl.amax(self, dim, keepdim=True)
    high = fl.where(fl.isinf(high), 0, high)
    total = fl.log(fl.sum(fl.exp(self - high), dim, keepdim=keepdim))
    return total + high.reshape(total.shape)


def _running_extreme(self: Any, dim: int, largest: bool) -> Any:
    """Running extreme and its last place: the extreme of each prefix, taken over a lower triangle."""
    if self.dim() == 0:
        return self.clone(), fl.zeros((), dtype=fl.int64, device=self.device)
    n = self.shape[dim]
    moved = self.movedim(dim, -1)
    prefix = fl.arange(n, device=self.device)
    allowed = prefix.unsqueeze(0) <= prefix.unsqueeze(1)
    rows = moved.unsqueeze(-2).expand([*moved.shape[:-1], n, n])
    extreme = fl.where(allowed, rows, moved.unsqueeze(-1) if n else rows)
    best = fl.amax(extreme, -1, keepdim=True) if largest else fl.amin(extreme, -1, keepdim=True)
    is_extreme = fl.logical_and(fl.logical_or(rows == best, rows != rows), allowed)
    place = fl.amax(fl.where(is_extreme, prefix, -1), -1)
    return best.squeeze(-1).movedim(-1, dim), place.movedim(-1, dim)


definition("cummax")(lambda self, dim: _running_extreme(self, dim, True))
definition("cummin")(lambda self, dim: _running_extreme(self, dim, False))


@definition("logcumsumexp")
def logcumsumexp(self: Any, dim: int) -> Any:
    if self.dim() == 0:
        return self.clone()
    high = fl.amax(fl.real(self) if self.is_complex() else self, dim, keepdim=True)
    high = fl.where(fl.isinf(high), 0, high)
    return fl.log(fl.cumsum(fl.exp(self - high), dim)) + high


def _starts(first: Any) -> tuple[Any, Any, Any]:
    """From a mask of the elements that begin a run: their indices, the run of each element, and the lengths of the runs."""
    n = first.shape[0]
    starts = fl.nonzero(first).reshape(-1)
    ends = fl.cat([starts.narrow(0, 1, max(starts.shape[0] - 1, 0)), fl.full((1,), n, device=first.device)])
    return starts, fl.cumsum(first, 0) - 1, ends.narrow(0, 0, starts.shape[0]) - starts


def _begins(changed: Any) -> Any:
    """Mask of the elements that begin a run, from whether each but the first differs from the one before it."""
    return fl.cat([fl.ones(1, dtype=fl.bool, device=changed.device), changed])


def _back(places: Any, values: Any) -> Any:
    """values[i] at places[i], for a permutation."""
    return fl.scatter(fl.zeros_like(values), 0, places, values)


@definition("_unique")
def _unique(self: Any, consecutive: bool, inverse: bool = True) -> Any:
    flat, places = self.reshape(-1), None
    n = flat.shape[0]
    none = fl.zeros(0, dtype=fl.int64, device=self.device)
    if n == 0:
        return flat.clone(), none.reshape(self.shape) if inverse else none, none.clone()
    if not consecutive:
        flat, places = fl.sort(flat, stable=True)
    starts, runs, lengths = _starts(_begins(flat.narrow(0, 1, n - 1) != flat.narrow(0, 0, n - 1)))
    if inverse:
        none = (runs if places is None else _back(places, runs)).reshape(self.shape)
    return fl.index_select(flat, 0, starts), none, lengths


@definition("_unique_rows")
def _unique_rows(self: Any, consecutive: bool) -> Any:
    n = self.shape[0]
    if n == 0:
        return tuple(fl.zeros(0, dtype=fl.int64, device=self.device) for _ in range(3))
    rows = self.reshape(n, -1)
    order = fl.arange(n, device=self.device)
    if not consecutive:
        for column in reversed(range(rows.shape[1])):
            keys = fl.index_select(rows.select(1, column), 0, order)
            order = fl.index_select(order, 0, fl.sort(keys, stable=True)[1])
    ordered = fl.index_select(rows, 0, order)
    changed = fl.any(ordered.narrow(0, 1, n - 1) != ordered.narrow(0, 0, n - 1), 1)
    starts, runs, lengths = _starts(_begins(changed))
    return fl.index_select(order, 0, starts), _back(order, runs), lengths


@definition("bincount")
def bincount(self: Any, weights: Any = None, minlength: int = 0) -> Any:
    if minlength < 0:
        raise RuntimeError(f"[bincount] expected minlength of at least 0, got {minlength}")
    if self.dim() != 1:
        raise RuntimeError(f"[bincount] expected a tensor of one dimension, got shape {tuple(self.shape)}")
    if self.is_floating_point() or self.is_complex() or self.dtype is fl.bool:
        raise NotImplementedError(f"[bincount] expected integers, got {self.dtype}")
    if weights is not None and weights.shape != self.shape:
        shapes = f"{tuple(self.shape)}, got {tuple(weights.shape)}"
        raise RuntimeError(f"[bincount] expected weights of the shape {shapes}")
    bins = minlength
    if self.numel():
        least, most = fl.stack(fl.aminmax(self)).tolist()
        if least < 0:
            raise RuntimeError(
                f"[bincount] expected integers that are not negative, got {least}: bincount only supports 1-d non-negative integral inputs."
            )
        bins = max(bins, most + 1)
    at = self.to(fl.int64)
    if weights is None:
        weights = fl.ones_like(at)
    elif weights.dtype is not fl.float32:
        weights = weights.to(fl.float64)
    return fl.scatter_add(fl.zeros(bins, dtype=weights.dtype, device=self.device), 0, at, weights)


@definition("histc")
def histc(self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    if bins <= 0:
        raise RuntimeError(f"[histc] expected a positive number of bins, got {bins}: bins must be > 0")
    if not self.is_floating_point():
        raise NotImplementedError(f"[histc] expected a floating point dtype, got {self.dtype}")
    # The range is of the CPU, where it is looked at without waiting again.
    options = {"dtype": self.dtype, "device": "cpu"}
    flat = self.reshape(-1)
    low, high = fl.full((), min, **options), fl.full((), max, **options)
    if float(low) == float(high) and flat.numel():
        low, high = fl.stack(fl.aminmax(flat)).cpu().unbind()
    if float(low) == float(high):
        low, high = low - 1, high + 1
    ends = float(low), float(high)
    if not all(map(math.isfinite, ends)):
        raise RuntimeError(f"[histc] expected a finite range, got {ends[0]} to {ends[1]}: max must be larger than min")
    if ends[0] >= ends[1]:
        raise RuntimeError(f"[histc] expected max larger than min, got {ends[0]} to {ends[1]}")
    wide = fl.float64 if self.dtype is fl.float64 else fl.float32
    scale = (fl.full((), bins, dtype=wide, device="cpu") / (high - low).to(wide)).to(self.dtype)
    inside = fl.logical_and(flat >= low, flat <= high)
    at = (fl.where(inside, flat, low) - low) * scale
    at = fl.where(at < bins, at, bins - 1).to(fl.int64).clamp(0, bins - 1)
    counts = fl.zeros(bins, dtype=fl.int64, device=self.device)
    return fl.scatter_add(counts, 0, at, inside.to(fl.int64)).to(self.dtype)


@definition("_histogramdd")
def _histogramdd(points: Any, edges: Sequence[Any], uniform: bool, weight: Any = None) -> Any:
    if points.dtype not in (fl.float32, fl.float64):
        raise NotImplementedError(f"[histogram] expected float32 or float64, got {points.dtype}")
    counts = [max(0, e.numel() - 1) for e in edges]
    out = fl.zeros(counts, dtype=points.dtype, device=points.device)
    if out.numel() == 0:
        return out
    rows = points.reshape(-1, len(edges))
    at = fl.zeros(rows.shape[0], dtype=fl.int64, device=points.device)
    inside = fl.ones_like(at, dtype=fl.bool)
    for d, (boundaries, bins) in enumerate(zip(edges, counts)):
        line, x = boundaries.to(points.dtype).reshape(-1), rows.select(1, d).contiguous()
        inside = inside & (x >= line[0]) & (x <= line[bins])
        at = at * bins + (fl._ops._search(line, x, True, False) - 1).clamp(0, bins - 1)
    weight = fl.ones_like(at, dtype=points.dtype) if weight is None else weight.reshape(-1).to(points.dtype)
    weight = fl.where(inside, weight, fl.zeros_like(weight))
    return fl.scatter_add(out.reshape(-1), 0, fl.where(inside, at, 0), weight).reshape(counts)


@definition("_isin_sorted")
def _isin_sorted(self: Any, list: Any, invert: bool) -> Any:
    if list.numel() == 0:
        return fl.full(self.shape, invert, dtype=fl.bool, device=self.device)
    if list.is_floating_point():
        # NaN comes last and equals nothing, but a search takes it for the least: the largest number stands in for it.
        whole = list == list
        largest = list.gather(0, (whole.sum() - 1).clamp_min(0).reshape(1))
        list = fl.where(whole, list, largest)
    at = fl._ops._search(list, self.contiguous(), False, False).clamp(max=list.shape[0] - 1)
    near = fl.gather(list, 0, at.reshape(-1)).reshape(self.shape)
    return self != near if invert else self == near


# ---------------------------------------------------------------- as ATen has them


def _norm_as_aten(order: float) -> Callable[..., Any]:
    def norm(self: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        if dtype is not None:
            return NotImplemented
        return fl.ops.aten.linalg_vector_norm.default, (self, order, dim, keepdim)

    return norm


aten_parts("_norm_1")(_norm_as_aten(1.0))
aten_parts("_norm_2")(_norm_as_aten(2.0))
aten_parts("_norm_inf")(_norm_as_aten(math.inf))
