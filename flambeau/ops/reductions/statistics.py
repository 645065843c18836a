"""Statistics: quantiles, covariance, histograms, bin counts, unique values, membership."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops.record import Scalar, autocast, composite, native
from flambeau.ops.recording import without_data
from flambeau.ops.values import all_values

BINS = range  # `range` is an argument of the histograms
DATA = ("data_dependent", "no_grad")

native("_unique(Tensor self, bool consecutive, bool inverse=True) -> (Tensor, Tensor, Tensor)", tags=DATA)
native("_unique_rows(Tensor self, bool consecutive) -> (Tensor, Tensor, Tensor)", tags=DATA)
native(
    "_search(Tensor sequence, Tensor values, bool right, bool int32, Tensor? sorter=None) -> Tensor", tags=("no_grad",)
)
native("_isin_sorted(Tensor self, Tensor list, bool invert) -> Tensor", tags=("no_grad",))
native("_histogramdd(Tensor points, Tensor[] edges, bool uniform, Tensor? weight=None) -> Tensor", tags=("no_grad",))
native("bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor", tags=DATA)
native("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", out=True, tags=("no_grad",))


# ---------------------------------------------------------------- searching
#
# Decorators apply from below: the overload for tensors comes first, else one element would be taken for a number.


def _check_search(sequence: fl.Tensor, values: fl.Tensor, sorter: fl.Tensor | None) -> None:
    if sequence.dim() == 0:
        raise RuntimeError("[searchsorted] expected boundaries of at least one dimension, got a 0-d tensor")
    if sequence.dim() != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            f"[searchsorted] expected 1-d boundaries or ones that match all but the last dimension of the values, got "
            f"{tuple(sequence.shape)} and {tuple(values.shape)}"
        )
    if sorter is not None:
        if sorter.shape != sequence.shape:
            raise RuntimeError(
                f"[searchsorted] expected a sorter of the shape {tuple(sequence.shape)}, got {tuple(sorter.shape)}"
            )
        if sorter.dtype != fl.int64:
            raise RuntimeError(f"[searchsorted] expected a sorter of int64, got {sorter.dtype}")
        if sorter.numel() and not sorter.is_meta and (sorter.min() < 0 or sorter.max() >= sequence.size(-1)):
            raise RuntimeError("[searchsorted] expected a sorter within the boundaries, got an index out of range")


@composite(
    "searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, "
    "str? side=None, Tensor? sorter=None) -> Tensor",
    out=True,
    method=False,
)
@composite("searchsorted.Tensor", out=True, method=False)
def searchsorted(
    sorted_sequence: fl.Tensor,
    self: fl.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: fl.Tensor | None = None,
) -> fl.Tensor:
    if side not in (None, "left", "right"):
        raise RuntimeError(f"[searchsorted] expected side to be 'left' or 'right', got {side!r}")
    if side == "left" and right:
        raise RuntimeError("[searchsorted] expected side and right to agree, got side='left' and right=True")
    if not isinstance(self, fl.Tensor):
        if sorted_sequence.dim() != 1:
            raise RuntimeError(
                f"[searchsorted] expected 1-d boundaries for a number, got {sorted_sequence.dim()} dimensions"
            )
        self = fl.tensor(self, dtype=sorted_sequence.dtype, device=sorted_sequence.device)
    _check_search(sorted_sequence, self, sorter)
    if out_int32 and sorted_sequence.size(-1) >= 2**31:
        raise RuntimeError("[searchsorted] expected boundaries that int32 can number, got too many for out_int32=True")
    return fl._ops._search(sorted_sequence, self, right or side == "right", out_int32, sorter)


@composite(
    "bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
    method=False,
)
@composite("bucketize.Tensor", out=True, method=False)
def bucketize(self: fl.Tensor, boundaries: fl.Tensor, *, out_int32: bool = False, right: bool = False) -> fl.Tensor:
    if boundaries.dim() != 1:
        raise RuntimeError(f"[bucketize] expected boundaries of one dimension, got {boundaries.dim()}")
    if not isinstance(self, fl.Tensor):
        self = fl.tensor(self, dtype=boundaries.dtype, device=boundaries.device)
    return fl.searchsorted(boundaries, self, out_int32=out_int32, right=right)


@composite(out=True)
def isin(
    elements: fl.Tensor | Scalar,
    test_elements: fl.Tensor | Scalar,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> fl.Tensor:
    if not isinstance(elements, fl.Tensor):
        if not isinstance(test_elements, fl.Tensor):
            raise TypeError("[isin] expected at least one tensor, got two numbers")
        elements = fl.tensor(elements, device=test_elements.device)
    if not isinstance(test_elements, fl.Tensor):
        return fl.ne(elements, test_elements) if invert else fl.eq(elements, test_elements)
    if elements.device != test_elements.device and not (elements.is_meta or test_elements.is_meta):
        raise RuntimeError(f"[isin] expected tensors on one device, got {elements.device} and {test_elements.device}")
    if test_elements.numel() <= 8:
        inside = fl.full(elements.shape, False, dtype=fl.bool, device=elements.device)
        for one in test_elements.reshape(-1):
            inside = fl.logical_or(inside, fl.eq(elements, one))
        return fl.logical_not(inside) if invert else inside
    return fl._ops._isin_sorted(elements, fl.sort(test_elements.reshape(-1))[0], invert)


# ---------------------------------------------------------------- quantiles

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _fractions(q: fl.Tensor) -> bool:
    return bool(fl.logical_and(q >= 0, q <= 1).all())


def _quantile(name: str, x: fl.Tensor, q: Any, dim: int | None, keepdim: bool, how: str, skip_nan: bool) -> fl.Tensor:
    if x.dtype not in (fl.float32, fl.float64):
        raise RuntimeError(f"[{name}] expected float32 or float64, got {x.dtype}")
    if how not in INTERPOLATIONS:
        raise RuntimeError(f"[{name}] expected interpolation to be one of {INTERPOLATIONS}, got {how!r}")
    if x.numel() == 0:
        raise RuntimeError(
            f"[{name}] expected a tensor that is not empty, got shape {tuple(x.shape)}: {name}() input tensor must be non-empty"
        )
    if isinstance(q, fl.Tensor):
        if q.dim() > 1:
            raise RuntimeError(f"[{name}] expected q to be a number or a 1-d tensor, got {q.dim()} dimensions")
        if q.dtype != x.dtype:
            raise RuntimeError(f"[{name}] expected q of the dtype {x.dtype} of the input, got {q.dtype}")
        if not q.is_meta and q.numel() and not _fractions(all_values(q)):
            raise RuntimeError(f"[{name}] expected q within [0, 1], got values outside")
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"[{name}] expected q within [0, 1], got {q}")
        q = fl.full((), q, dtype=x.dtype, device=x.device)
    shape = [1] * x.dim() if dim is None else list(x.shape)
    if dim is None:
        lines = x.reshape(1, -1)
    else:
        lines = x.unsqueeze(0) if x.dim() == 0 else x.transpose(dim, -1)
        if x.dim():
            shape[dim] = 1
    ordered = fl.sort(lines, -1)[0]
    size = ordered.size(-1)
    # Every q for every line: the result has q's dimension last until the end.
    wanted = q.reshape(-1)
    if skip_nan:
        last = fl.logical_not(fl.isnan(ordered)).sum(-1, True).to(x.dtype) - 1
        rank = fl.clamp_min(wanted * last, 0.0)
    else:
        rank = (wanted * (size - 1)).expand(*ordered.shape[:-1], wanted.numel())
        rank = fl.where(fl.isnan(ordered).any(-1, True), size - 1.0, rank)
    if how == "nearest":
        below = above = fl.round(rank)
    else:
        below, above = fl.floor(rank), fl.ceil(rank)
    if how == "lower":
        above = below
    elif how == "higher":
        below = above
    low = fl.gather(ordered, -1, below.to(fl.int64))
    result = low
    if how in ("linear", "midpoint"):
        high = fl.gather(ordered, -1, above.to(fl.int64))
        weight = fl.full_like(rank, 0.5) if how == "midpoint" else rank - below
        result = fl.lerp(low, high, weight)
    if dim is not None and x.dim():
        # (..., line dims with dim swapped to the end, q) -> (q, ..., dim)
        result = result.movedim(-1, 0).unsqueeze(-1).transpose(dim % x.dim() + 1, -1)
        result = result if keepdim else result.squeeze(dim % x.dim() + 1)
    else:
        result = result.reshape([wanted.numel(), *shape] if keepdim else [wanted.numel()])
    return result if q.dim() else result.squeeze(0)


@composite(out=True)
def quantile(
    self: fl.Tensor,
    q: fl.Tensor | Scalar,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> fl.Tensor:
    return _quantile("quantile", self, q, dim, keepdim, interpolation, False)


@composite(out=True)
def nanquantile(
    self: fl.Tensor,
    q: fl.Tensor | Scalar,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> fl.Tensor:
    return _quantile("nanquantile", self, q, dim, keepdim, interpolation, True)


# ---------------------------------------------------------------- covariance


@composite()
def cov(
    self: fl.Tensor, *, correction: int = 1, fweights: fl.Tensor | None = None, aweights: fl.Tensor | None = None
) -> fl.Tensor:
    if self.dim() > 2:
        raise RuntimeError(f"[cov] expected at most 2 dimensions, got {self.dim()}")
    if self.dtype == fl.bool:
        raise RuntimeError("[cov] expected a numeric tensor, got bool")
    x = self if self.dim() == 2 else self.reshape(1, -1)
    count = x.size(1)
    weights = None
    for name, each_weight in (("fweights", fweights), ("aweights", aweights)):
        if each_weight is None:
            continue
        if each_weight.dim() > 1 or each_weight.numel() != count:
            raise RuntimeError(
                f"[cov] expected {name} of {count} elements in one dimension, got {tuple(each_weight.shape)}"
            )
        exact = not (each_weight.is_floating_point() or each_weight.is_complex())
        if name == "fweights" and (not exact or each_weight.dtype == fl.bool):
            raise RuntimeError(f"[cov] expected fweights of integers, got {each_weight.dtype}")
        if name == "aweights" and not each_weight.is_floating_point():
            raise RuntimeError(f"[cov] expected aweights of floating point, got {each_weight.dtype}")
        if not each_weight.is_meta and each_weight.numel() and bool((all_values(each_weight) < 0).any()):
            raise RuntimeError(f"[cov] expected {name} that are not negative, got negative ones")
        weights = each_weight if weights is None else weights * each_weight
    if weights is None:
        total = count
        mean = x.sum(1, True) / total
        norm = fl.full((), count, dtype=fl.float32, device=x.device) - correction
    else:
        total = weights.sum()
        mean = (x * weights).sum(1, True) / total
        if aweights is None or correction == 0:
            norm = total - correction
        else:
            scaled = aweights if fweights is None else fweights * aweights
            norm = total - correction * (scaled * aweights).sum() / total
    centred = x - mean
    spread = centred if weights is None else centred * weights
    norm = fl.clamp_min(norm, 0).to(device=x.device)
    other = centred.conj() if centred.is_complex() else centred
    return fl.squeeze(fl.true_divide(fl.matmul(spread, other.transpose(0, 1)), norm))


@composite()
def corrcoef(self: fl.Tensor) -> fl.Tensor:
    if self.dim() > 2:
        raise RuntimeError(f"[corrcoef] expected at most 2 dimensions, got {self.dim()}")
    c = fl.cov(self)
    if c.dim() == 0:
        return c / c
    scale = fl.sqrt(fl.real(fl.diagonal(c)) if c.is_complex() else fl.diagonal(c))
    c = c / scale.unsqueeze(1) / scale.unsqueeze(0)
    if c.is_complex():
        return fl.complex(fl.clamp(fl.real(c), -1, 1), fl.clamp(fl.imag(c), -1, 1))
    return fl.clamp(c, -1, 1)


# ---------------------------------------------------------------- histograms


def _edges(x: fl.Tensor, bins: list[int], range: list[float] | None) -> list[fl.Tensor]:
    """Evenly spaced edges for each coordinate of the points (n, d)."""
    if range is not None:
        if len(range) != 2 * len(bins):
            raise RuntimeError(f"[histogram] expected a range of {2 * len(bins)} numbers, got {len(range)}")
        ends = [(float(range[2 * i]), float(range[2 * i + 1])) for i in BINS(len(bins))]
    elif x.numel() == 0 or without_data("histogram", x):
        ends = [(0.0, 1.0)] * len(bins)
    else:
        low, high = fl.amin(x, 0).tolist(), fl.amax(x, 0).tolist()
        ends = list(zip(low, high))
    edges = []
    for count, (low, high) in zip(bins, ends):
        if count <= 0:
            raise RuntimeError(f"[histogram] expected a positive number of bins, got {count}")
        if not (low <= high and low - low == 0 and high - high == 0):
            raise RuntimeError(f"[histogram] expected a finite range in ascending order, got {low} to {high}")
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges.append(fl.linspace(low, high, count + 1, dtype=x.dtype, device=x.device))
    return edges


def _density(counts: fl.Tensor, edges: list[fl.Tensor]) -> fl.Tensor:
    counts = counts / counts.sum()
    for d, e in enumerate(edges):
        shape = [1] * counts.dim()
        shape[d] = -1
        counts = counts / fl.diff(e).reshape(shape)
    return counts


def _check_histogram(x: fl.Tensor, weight: fl.Tensor | None, points: list[int]) -> None:
    if weight is not None and list(weight.shape) != points:
        raise RuntimeError(f"[histogram] expected weights of the shape {tuple(points)}, got {tuple(weight.shape)}")
    if weight is not None and weight.dtype != x.dtype:
        raise RuntimeError(f"[histogram] expected weights of the input's dtype {x.dtype}, got {weight.dtype}")


@composite("histogram.bins_tensor", results="hist bin_edges", out=True)
def histogram_edges(
    self: fl.Tensor, bins: fl.Tensor, *, weight: fl.Tensor | None = None, density: bool = False
) -> tuple[fl.Tensor, fl.Tensor]:
    _check_histogram(self, weight, list(self.shape))
    if bins.dim() != 1 or bins.numel() == 0:
        raise RuntimeError(f"[histogram] expected edges in one dimension, got shape {tuple(bins.shape)}")
    if bins.dtype != self.dtype:
        raise RuntimeError(f"[histogram] expected edges of the input's dtype {self.dtype}, got {bins.dtype}")
    counts = fl._ops._histogramdd(self.reshape(-1, 1), [bins], False, weight)
    return (_density(counts, [bins]) if density else counts), bins.clone()


@composite(
    "histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False)"
    " -> (Tensor hist, Tensor bin_edges)",
    out=True,
)
def histogram_count(
    self: fl.Tensor,
    bins: int = 100,
    *,
    range: list[float] | None = None,
    weight: fl.Tensor | None = None,
    density: bool = False,
) -> tuple[fl.Tensor, fl.Tensor]:
    _check_histogram(self, weight, list(self.shape))
    points = self.reshape(-1, 1)
    edges = _edges(points, [bins], range)
    counts = fl._ops._histogramdd(points, edges, True, weight)
    return (_density(counts, edges) if density else counts), edges[0]


def histogramdd(
    x: fl.Tensor,
    bins: list[int] | int | list[fl.Tensor],
    range: list[float] | None = None,
    weight: fl.Tensor | None = None,
    density: bool = False,
) -> tuple[fl.Tensor, list[fl.Tensor]]:
    """Counts of points (..., d) in a grid of bins, and the edges of the grid."""
    if x.dim() < 2:
        raise RuntimeError(f"[histogramdd] expected at least 2 dimensions, got {x.dim()}")
    _check_histogram(x, weight, list(x.shape[:-1]))
    dims = x.size(-1)
    points = x.reshape(-1, dims)
    if isinstance(bins, int):
        bins = [bins] * dims
    if len(bins) != dims:
        raise RuntimeError(f"[histogramdd] expected bins for {dims} dimensions, got {len(bins)}")
    uniform = not isinstance(bins[0], fl.Tensor)
    edges = _edges(points, list(bins), range) if uniform else [b.clone() for b in bins]  # type: ignore[arg-type, union-attr]
    counts = fl._ops._histogramdd(points, edges, uniform, None if weight is None else weight.reshape(-1))
    return (_density(counts, edges) if density else counts), edges


@composite("hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor", out=True)
def hash_tensor(self: fl.Tensor, dim: list[int], *, keepdim: bool = False, mode: int = 0) -> fl.Tensor:
    """The bits of the elements, widened to 64, combined by exclusive or."""
    if mode != 0:
        raise RuntimeError(f"[hash_tensor] expected mode 0, got {mode}: Unknown hash_tensor mode")
    if self.is_complex():
        raise NotImplementedError(f"[hash_tensor] expected real numbers, got {self.dtype}")
    if self.numel() == 0 and not dim:
        raise RuntimeError(
            "[hash_tensor] expected a dimension for a tensor without elements, got none: Expected reduction dim to be specified for "
            "input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        )
    gone = sorted({d % max(self.dim(), 1) for d in dim}) if dim else list(range(self.dim()))
    remaining = [d for d in range(self.dim()) if d not in gone]
    bits = self.double().view(fl.int64) if self.is_floating_point() else self.long()
    size = (
        [1 if d in gone else length for d, length in enumerate(self.shape)]
        if keepdim
        else [self.shape[d] for d in remaining]
    )
    if self.dim():
        bits = bits.permute(*remaining, *gone).reshape(
            [*(self.shape[d] for d in remaining), -1] if self.numel() else [*size, 0]
        )
    else:
        bits = bits.reshape(1)
    while bits.shape[-1] > 1:
        half = bits.shape[-1] // 2
        folded = bits[..., :half] ^ bits[..., half : 2 * half]
        bits = fl.cat([folded, bits[..., 2 * half :]], -1)
    if bits.shape[-1] == 0:
        return bits.new_zeros(size).view(fl.uint64)
    return bits.reshape(size).view(fl.uint64)


# ---------------------------------------------------------------- what passes know of these operators

autocast("float32", "nanquantile quantile", on="cpu")
