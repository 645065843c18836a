"""Searching and counting in terms of primitives: unique values, histograms, modes and medians, bags of rows, sparse
matrices, and maxima over windows of unequal places.

Most of them sort, number the runs of equal values by a running sum, and add up by those numbers. Part of the table in
`definitions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.definitions import TABLE, _positions, decompose

# ---------------------------------------------------------------- runs of equal values


def _starts(first: Any) -> tuple[Any, Any, Any]:
    """Of a mask of the elements that begin a run: places of these, the run of each element, and the runs' lengths."""
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


@decompose("_unique")
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


@decompose("_unique_rows")
def _unique_rows(self: Any, consecutive: bool) -> Any:
    n = self.shape[0]
    if n == 0:
        return tuple(fl.zeros(0, dtype=fl.int64, device=self.device) for _ in range(3))
    rows = self.reshape(n, -1)
    order = _positions(n, self.device)
    if not consecutive:
        for column in reversed(range(rows.shape[1])):
            keys = fl.index_select(rows.select(1, column), 0, order)
            order = fl.index_select(order, 0, fl.sort(keys, stable=True)[1])
    ordered = fl.index_select(rows, 0, order)
    changed = fl.any(ordered.narrow(0, 1, n - 1) != ordered.narrow(0, 0, n - 1), 1)
    starts, runs, lengths = _starts(_begins(changed))
    return fl.index_select(order, 0, starts), _back(order, runs), lengths


@decompose("_sparse_groups")
def _sparse_groups(indices: Any, size: Sequence[int]) -> Any:
    keys = fl.zeros(indices.shape[1], dtype=fl.int64, device=indices.device)
    for d, n in enumerate(size):
        row = indices.select(0, d)
        if row.numel() and not (int(fl.amin(row)) >= 0 and int(fl.amax(row)) < n):
            raise RuntimeError(f"[coalesce] expected indices below {n} in dimension {d}, got one outside")
        keys = keys * n + row
    found, groups, _ = _unique(keys, False)
    rows = []
    for n in reversed(size):
        rows.append(fl.remainder(found, n) if n else found)
        found = fl.div(found, n, rounding_mode="floor") if n else found
    unique = fl.stack(rows[::-1]) if rows else indices.narrow(1, 0, min(1, indices.shape[1])).clone()
    return unique, groups


@decompose("mode")
def mode(self: Any, dim: int = -1, keepdim: bool = False) -> Any:
    if self.dim() == 0:
        return self.clone(), fl.zeros((), dtype=fl.int64, device=self.device)
    values, places = fl.sort(self.movedim(dim, -1), dim=-1, stable=True)
    n = values.shape[-1]
    after, before = values.narrow(-1, 1, n - 1), values.narrow(-1, 0, n - 1)
    changed = fl.logical_and(after != before, fl.logical_or(after == after, before == before))
    first = fl.cat([fl.ones([*values.shape[:-1], 1], dtype=fl.bool, device=self.device), changed], -1)
    runs = fl.cumsum(first, -1) - 1
    lengths = fl.scatter_add(fl.zeros_like(runs), -1, runs, fl.ones_like(runs))
    best = fl.argmax(lengths, -1, keepdim=True)
    at = fl.sum(runs <= best, -1, keepdim=True) - 1
    found = fl.gather(values, -1, at), fl.gather(places, -1, at)
    return tuple(t.movedim(-1, dim) if keepdim else t.squeeze(-1) for t in found)


# ---------------------------------------------------------------- medians


def _median(self: Any, dim: int, keepdim: bool, skip: bool) -> Any:
    """The lower of the middle elements; NaN, unless it is skipped, where there is one."""
    if self.dim() == 0:
        return self.clone(), fl.zeros((), dtype=fl.int64, device=self.device)
    values, places = fl.sort(self, dim=dim, stable=True)
    numbers = fl.sum(self == self, dim, keepdim=True)
    n = self.shape[dim]
    middle = fl.div(numbers - 1, 2, rounding_mode="floor").clamp(min=0)
    at = middle if skip else fl.where(numbers < n, numbers, middle)
    found = fl.gather(values, dim, at), fl.gather(places, dim, at)
    return found if keepdim else tuple(t.squeeze(dim) for t in found)


def _median_of_all(self: Any, skip: bool) -> Any:
    if self.numel() == 0:
        floating = self.is_floating_point()
        return fl.full((), math.nan if floating else fl.iinfo(self.dtype).min, dtype=self.dtype, device=self.device)
    return _median(self.reshape(-1), 0, False, skip)[0]


TABLE["median.dim"] = lambda self, dim, keepdim=False: _median(self, dim, keepdim, False)
TABLE["nanmedian.dim"] = lambda self, dim, keepdim=False: _median(self, dim, keepdim, True)
TABLE["median"] = lambda self: _median_of_all(self, False)
TABLE["nanmedian"] = lambda self: _median_of_all(self, True)


# ---------------------------------------------------------------- counts and histograms


@decompose("bincount")
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
            raise RuntimeError(f"[bincount] expected integers that are not negative, got {least}")
        bins = max(bins, most + 1)
    at = self.to(fl.int64)
    if weights is None:
        weights = fl.ones_like(at)
    elif weights.dtype is not fl.float32:
        weights = weights.to(fl.float64)
    return fl.scatter_add(fl.zeros(bins, dtype=weights.dtype, device=self.device), 0, at, weights)


@decompose("histc")
def histc(self: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    if bins <= 0:
        raise RuntimeError(f"[histc] expected a positive number of bins, got {bins}")
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
        raise RuntimeError(f"[histc] expected a finite range, got {ends[0]} to {ends[1]}")
    if ends[0] >= ends[1]:
        raise RuntimeError(f"[histc] expected max larger than min, got {ends[0]} to {ends[1]}")
    wide = fl.float64 if self.dtype is fl.float64 else fl.float32
    scale = (fl.full((), bins, dtype=wide, device="cpu") / (high - low).to(wide)).to(self.dtype)
    inside = fl.logical_and(flat >= low, flat <= high)
    at = (fl.where(inside, flat, low) - low) * scale
    at = fl.where(at < bins, at, bins - 1).to(fl.int64).clamp(0, bins - 1)
    counts = fl.zeros(bins, dtype=fl.int64, device=self.device)
    return fl.scatter_add(counts, 0, at, inside.to(fl.int64)).to(self.dtype)


@decompose("_histogramdd")
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
    for d, (given, bins) in enumerate(zip(edges, counts)):
        line, x = given.to(points.dtype).reshape(-1), rows.select(1, d).contiguous()
        inside = inside & (x >= line[0]) & (x <= line[bins])
        at = at * bins + (fl._ops._search(line, x, True, False) - 1).clamp(0, bins - 1)
    weight = fl.ones_like(at, dtype=points.dtype) if weight is None else weight.reshape(-1).to(points.dtype)
    weight = fl.where(inside, weight, fl.zeros_like(weight))
    return fl.scatter_add(out.reshape(-1), 0, fl.where(inside, at, 0), weight).reshape(counts)


@decompose("_isin_sorted")
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


@decompose("nonzero_static")
def nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
    if size < 0:
        raise RuntimeError(f"[nonzero_static] expected a size that is not negative, got {size}")
    found = fl.nonzero(self)
    out = fl.full((size, self.dim()), fill_value, dtype=fl.int64, device=self.device)
    n = min(size, found.shape[0])
    out.narrow(0, 0, n).copy_(found.narrow(0, 0, n))
    return out


# ---------------------------------------------------------------- draws with given chances

# The numbers are those that the CPU's kernels draw: one word for each element, or two.


def _bernoulli(chances: Any, shape: Any, generator: Any) -> Any:
    wide = chances.to(fl.float64).expand(shape)
    if wide.numel() and not bool(fl.all(fl.logical_and(wide >= 0, wide <= 1))):
        raise RuntimeError("[bernoulli] expected probabilities in [0, 1], got one outside")
    words = fl.randint(0, 1 << 32, shape, device=chances.device, generator=generator)
    return words.to(fl.float64) < wide * float(1 << 32)


@decompose("bernoulli")
def bernoulli(self: Any, *, generator: Any = None) -> Any:
    return _bernoulli(self, self.shape, generator).to(self.dtype)


@decompose("bernoulli_.Tensor")
def bernoulli_(self: Any, p: Any, *, generator: Any = None) -> Any:
    return self.copy_(_bernoulli(p, self.shape, generator))


@decompose("multinomial")
def multinomial(self: Any, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Any:
    if self.dim() not in (1, 2) or not self.is_floating_point():
        given = f"{self.dim()} dimensions of {self.dtype}"
        raise RuntimeError(f"[multinomial] expected floating point weights of 1 or 2 dimensions, got {given}")
    rows = self.reshape(-1, self.shape[-1]).to(fl.float64)
    n = rows.shape[1]
    if num_samples <= 0 or not (replacement or num_samples <= n):
        raise RuntimeError(f"[multinomial] expected 1 to {n} samples without replacement, got {num_samples}")
    total = fl.sum(rows, 1, keepdim=True)
    if not bool(fl.all((total > 0) & (total < math.inf) & (fl.amin(rows, 1, keepdim=True) >= 0))):
        raise RuntimeError("[multinomial] expected weights that are finite, not negative and not all 0")
    options = {"dtype": fl.float64, "device": self.device, "generator": generator}
    if replacement:
        totals = fl.cumsum(rows, 1)
        chances = fl.rand(rows.shape[0], num_samples, **options) * totals.narrow(1, n - 1, 1)
        at = fl._ops._search(totals, chances, True, False)
        found = at.clamp(max=n - 1)
    else:
        # Races of exponential clocks: the first to ring are a sample without replacement.
        steps = fl.floor(fl.rand(rows.shape, **options) * 2.0**52)
        rings = fl.where(rows > 0, -fl.log((steps + 0.5) * 2.0**-52) / rows, math.inf)
        found = fl.topk(rings, num_samples, 1, False)[1] if num_samples > 1 else rings.argmin(1, True)
    return found.reshape([*self.shape[:-1], num_samples]).contiguous()


# ---------------------------------------------------------------- rows of tables


@decompose("embedding_renorm_")
def embedding_renorm_(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    if self.dim() != 2:
        raise RuntimeError(f"[embedding_renorm_] expected a weight of 2 dimensions, got {tuple(self.shape)}")
    at = indices.reshape(-1).to(fl.int64)
    rows = fl.index_select(self, 0, at)
    wide = rows.to(fl.float64)
    size = fl.linalg.vector_norm(wide, norm_type, 1, keepdim=True)
    scaled = (wide * (max_norm / (size + 1e-7))).to(self.dtype)
    return self.index_copy_(0, at, fl.where(size > max_norm, scaled, rows))


@decompose("_embedding_bag")
def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    def shape(t: Any) -> Any:
        return None if t is None else fl.empty(t.shape, dtype=t.dtype, device="meta")

    fl._embedding_bag(  # checks
        shape(weight), shape(indices), shape(offsets), scale_grad_by_freq, mode, sparse, shape(per_sample_weights),
        include_last_offset, padding_idx,
    )  # fmt: skip
    count, bags = indices.shape[0], offsets.shape[0] - include_last_offset
    index, starts = indices.to(fl.int64), offsets.to(fl.int64)
    options = {"dtype": fl.int64, "device": weight.device}
    marks = fl.scatter_add(fl.zeros(count + 1, **options), 0, starts, fl.ones_like(starts))
    bag = fl.cumsum(marks, 0).narrow(0, 0, count) - 1
    member = fl.logical_and(index != padding_idx, bag < bags)
    # What belongs to no bag is added to one more, which is dropped.
    own = fl.where(member, bag, bags)
    sizes = fl.scatter_add(fl.zeros(bags + 1, **options), 0, own, fl.ones_like(own)).narrow(0, 0, bags)
    wide = fl.float64 if weight.dtype is fl.float64 else fl.float32
    rows = fl.index_select(weight, 0, index).to(wide)
    if mode == 2:
        values, best = _bag_maxima(rows, own, index, bags)
        return values.to(weight.dtype), bag, sizes, best
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(wide).unsqueeze(1)
    out = fl.zeros(bags + 1, weight.shape[1], dtype=wide, device=weight.device)
    out = fl.index_add(out, 0, own, rows).narrow(0, 0, bags)
    if mode == 1:
        out = out / sizes.clamp(min=1).unsqueeze(1)
    return out.to(weight.dtype), bag, sizes, fl.zeros(0, **options)


def _bag_maxima(rows: Any, own: Any, index: Any, bags: int) -> Any:
    """The largest element of each bag and column, and the row of the table it is from; both 0 for an empty bag."""
    count, width = rows.shape
    where = own.unsqueeze(1).expand(count, width)
    blank = fl.zeros(bags + 1, width, dtype=rows.dtype, device=rows.device)
    most = fl.scatter_reduce(blank, 0, where, rows, "amax", include_self=False)
    place = _positions(count, rows.device).unsqueeze(1)
    place = fl.where(rows == fl.gather(most, 0, where), place, count)
    none = fl.full((bags + 1, width), count, dtype=fl.int64, device=rows.device)
    first = fl.scatter_reduce(none, 0, where, place, "amin").narrow(0, 0, bags)
    ids = fl.cat([index, fl.zeros(1, dtype=fl.int64, device=index.device)])
    return most.narrow(0, 0, bags), fl.gather(ids, 0, first.reshape(-1)).reshape(bags, width)


@decompose("_sparse_mm")
def _sparse_mm(row: Any, column: Any, values: Any, dense: Any, rows: int) -> Any:
    parts = fl.index_select(dense, 0, column) * values.unsqueeze(1)
    return fl.index_add(fl.zeros(rows, dense.shape[1], dtype=dense.dtype, device=dense.device), 0, row, parts)


@decompose("_sparse_dots")
def _sparse_dots(row: Any, column: Any, a: Any, b: Any) -> Any:
    return fl.sum(fl.index_select(a, 0, row) * fl.index_select(b, 0, column), 1, dtype=a.dtype)


@decompose("_overlap_add")
def _overlap_add(self: Any, hop: int) -> Any:
    batch, count, width = self.shape
    length = (count - 1) * hop + width if count else 0
    places = _positions(count, self.device).unsqueeze(1) * hop + _positions(width, self.device)
    out = fl.zeros(batch, length, dtype=self.dtype, device=self.device)
    return fl.index_add(out, 1, places.reshape(-1), self.reshape(batch, -1)) if out.numel() else out


# ---------------------------------------------------------------- maxima over windows


def _window_maxima(self: Any, places: Sequence[Any]) -> Any:
    """Maxima over windows, and where they are in the plane. For each axis, `places` holds the positions of every window:
    (*, out, kernel), where * are the leading dimensions of self or ones."""
    ndim = len(places)
    lead, space = list(self.shape[: self.dim() - ndim]), list(self.shape[self.dim() - ndim :])
    at: Any = 0
    for d, (n, place) in enumerate(zip(space, places)):
        shape = list(place.shape[:-2]) + [1] * (2 * ndim)
        shape[len(shape) - 2 * ndim + d] = place.shape[-2]
        shape[len(shape) - ndim + d] = place.shape[-1]
        at = at * n + place.reshape(shape)
    outs, window = [p.shape[-2] for p in places], math.prod(p.shape[-1] for p in places)
    at = at.expand([*lead, *at.shape[at.dim() - 2 * ndim :]]).reshape([*lead, math.prod(outs), window])
    values = fl.gather(self.reshape([*lead, -1]), -1, at.reshape([*lead, -1])).reshape(at.shape)
    best, which = fl.max(values, -1)
    found = fl.gather(at, -1, which.unsqueeze(-1)).squeeze(-1)
    return best.reshape([*lead, *outs]), found.reshape([*lead, *outs])


def _adaptive_max(ndim: int) -> Callable[..., Any]:
    def run(self: Any, output_size: Sequence[int]) -> Any:
        outs = list(output_size) * (ndim if len(output_size) == 1 else 1)
        places = []
        for n, out in zip(self.shape[self.dim() - ndim :], outs):
            cells = [(i * n // out, -(-(i + 1) * n // out)) for i in range(out)]
            widest = max((b - a for a, b in cells), default=1)
            # Shorter windows name their last element again.
            rows = [[min(a + k, b - 1) for k in range(widest)] for a, b in cells]
            places.append(fl.tensor(rows, dtype=fl.int64).reshape(out, widest).to(self.device))
        return _window_maxima(self, places)

    return run


def _fractional_max(ndim: int) -> Callable[..., Any]:
    def run(self: Any, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Any) -> Any:
        kernel, outs = (list(x) * (ndim if len(x) == 1 else 1) for x in (kernel_size, output_size))
        lead = list(self.shape[: self.dim() - ndim])
        wide = fl.float64 if self.dtype is fl.float64 else fl.float32
        batch = lead[0] if len(lead) == 2 else 1
        samples = random_samples.narrow(0, 0, batch).to(wide).reshape([*lead, ndim])
        places = []
        for d, (n, k, out) in enumerate(zip(self.shape[self.dim() - ndim :], kernel, outs)):
            # In two dimensions the samples of the last axis come first.
            u = samples.select(-1, d if ndim == 3 else ndim - 1 - d).unsqueeze(-1)
            alpha = fl.full((), (n - k) / (out - 1) if out > 1 else 0.0, dtype=fl.float64).to(wide).to(self.device)
            steps = _positions(out, self.device)
            begin = ((steps.to(wide) + u) * alpha).to(fl.int64) - (u * alpha).to(fl.int64)
            begin = fl.where(steps == out - 1, n - k, begin)
            places.append(begin.unsqueeze(-1) + _positions(k, self.device))
        return _window_maxima(self, places)

    return run


TABLE["adaptive_max_pool1d"] = _adaptive_max(1)
for _n in (2, 3):
    TABLE[f"_adaptive_max_pool{_n}d"] = _adaptive_max(_n)
    TABLE[f"_fractional_max_pool{_n}d"] = _fractional_max(_n)
