"""Reductions: sums, products, extremes, logical tests, norms and moments along dimensions."""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau.ops import expr as e
from flambeau.ops.record import Scalar, autocast, composite, native, node, reduction, tag, vjp

INF = float("inf")

# ---------------------------------------------------------------- sums and products

sum = reduction(
    "sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    init=0,
    combine=lambda a, b: a + b,
    result="sum",
)

nansum = reduction(
    "nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    init=0,
    load={"f": lambda x: e.where(e.isnan(x), 0, x), "": lambda x: x},
    combine=lambda a, b: a + b,
    dtypes="bif",
    result="sum",
)

mean = reduction(
    "mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    init=0,
    combine=lambda a, b: a + b,
    finish=lambda a, n: a / n,
    dtypes="fc",
)

prod = reduction(
    "prod(Tensor self, int? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    init=1,
    combine=lambda a, b: a * b,
    result="sum",
)

count_nonzero = reduction(
    "count_nonzero(Tensor self, int[1]? dim=None) -> Tensor",
    init=0,
    load=lambda x: x != 0,
    combine=lambda a, b: a + b,
    accumulate="int",
    result="int",
    out=False,
)


# ---------------------------------------------------------------- extremes and logical tests

amax = reduction(
    "amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
    init="lowest",
    combine=lambda a, b: e.maximum(a, b),
    dtypes="bif",
    identity=False,
)

amin = reduction(
    "amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
    init="highest",
    combine=lambda a, b: e.minimum(a, b),
    dtypes="bif",
    identity=False,
)

any = reduction(
    "any(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor",
    init=0,
    load=lambda x: x != 0,
    combine=lambda a, b: a | b,
    accumulate="bool",
    result="bool",
)

all = reduction(
    "all(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor",
    init=1,
    load=lambda x: x != 0,
    combine=lambda a, b: a & b,
    accumulate="bool",
    result="bool",
)


# ---------------------------------------------------------------- norms by order


def squared(x: e.Expr) -> e.Expr:
    return e.real(x) * e.real(x) + e.imag(x) * e.imag(x)


NORM: dict[str, Any] = {"dtypes": "fc", "accumulate": "real", "result": "real", "out": False}
ARGS = "Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None"

reduction(f"_norm_0({ARGS}) -> Tensor", init=0, load=lambda x: x != 0, combine=lambda a, b: a + b, **NORM)
reduction(f"_norm_1({ARGS}) -> Tensor", init=0, load=lambda x: e.abs(x), combine=lambda a, b: a + b, **NORM)
reduction(
    f"_norm_2({ARGS}) -> Tensor",
    init=0,
    load={"c": squared, "": lambda x: x * x},
    combine=lambda a, b: a + b,
    finish=lambda a, n: e.sqrt(a),
    **NORM,
)
reduction(f"_norm_inf({ARGS}) -> Tensor", init=0, load=lambda x: e.abs(x), combine=lambda a, b: e.maximum(a, b), **NORM)
reduction(
    f"_norm_neg_inf({ARGS}) -> Tensor",
    init="highest",
    load=lambda x: e.abs(x),
    combine=lambda a, b: e.minimum(a, b),
    **NORM,
)
reduction(
    "_norm_p(Tensor self, Scalar p, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    init=0,
    load=lambda x, p: e.pow(e.abs(x), p),
    combine=lambda a, b: a + b,
    finish=lambda a, n, p: e.pow(a, 1 / p),
    **NORM,
)


# ---------------------------------------------------------------- extremes of everything, and with their index

for name, record in (("max", amax), ("min", amin)):
    reduction(
        f"{name}(Tensor self) -> Tensor",
        init=record.details["init"],
        combine=record.details["combine"],
        dtypes="bif",
        identity=False,
        alias_of=record.name,
    )
    native(f"{name}.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)", out=True)
    native(f"arg{name}(Tensor self, int? dim=None, bool keepdim=False) -> Tensor", out=True, tags=("no_grad",))


@composite(results="min max", out=True)
def aminmax(self: fl.Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[fl.Tensor, fl.Tensor]:
    if dim is not None:
        return fl.amin(self, dim, keepdim), fl.amax(self, dim, keepdim)
    if self.numel() == 0:
        raise RuntimeError(f"[aminmax] expected dim for a tensor without elements, got None for shape {self.shape}")
    lowest, highest = fl.amin(self), fl.amax(self)
    if keepdim:
        shape = [1] * self.dim()
        return lowest.reshape(shape), highest.reshape(shape)
    return lowest, highest


@composite("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True)
def nanmean(
    self: fl.Tensor, dim: list[int] | None = None, keepdim: bool = False, *, dtype: fl.dtype | None = None
) -> fl.Tensor:
    if not (self.is_floating_point() or self.is_complex()):
        raise RuntimeError(
            f"[nanmean] expected a floating point or complex dtype, got {self.dtype}: nanmean(): expected input to have floating "
            f"point or complex dtype but got {fl.empty(0, dtype=self.dtype).type().rpartition('.')[2].removesuffix('Tensor')}"
        )
    counted = fl.logical_not(fl.isnan(self)).sum(dim, keepdim)
    if self.is_complex():
        total = fl.where(fl.isnan(self), fl.zeros_like(self), self).sum(dim, keepdim, dtype=dtype)
    else:
        total = fl.nansum(self, dim, keepdim, dtype=dtype)
    return fl.div(total, counted)


# ---------------------------------------------------------------- moments

for name in ("var", "std"):
    native(f"{name}(Tensor self, bool unbiased=True) -> Tensor")
    native(f"{name}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor", out=True)
    native(
        f"{name}.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
        out=True,
    )
    pair = f"{name}_mean"
    native(f"{pair}(Tensor self, bool unbiased=True) -> (Tensor, Tensor)", method=False)
    native(
        f"{pair}.dim(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)",
        method=False,
    )
    native(
        f"{pair}.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False)"
        " -> (Tensor, Tensor)",
        method=False,
    )


# ---------------------------------------------------------------- logarithm of a sum of exponentials

native("_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor")


@composite("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", out=True)
@composite("special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor", out=True)
def logsumexp(self: fl.Tensor, dim: list[int], keepdim: bool = False) -> fl.Tensor:
    if not self.is_complex():
        return fl._ops._logsumexp(self, dim, keepdim)
    if self.numel() == 0:
        return fl.log(fl.sum(fl.exp(self), dim, keepdim))
    pivot = fl.amax(fl.real(self), dim, keepdim=True)
    pivot = fl.where(fl.isinf(pivot), fl.zeros_like(pivot), pivot)
    total = fl.log(fl.sum(fl.exp(self - pivot), dim, keepdim))
    return total + pivot.reshape(total.shape)


# ---------------------------------------------------------------- derivatives


def _dims(dim: int | list[int] | None, ndim: int) -> list[int]:
    """The reduced dimensions, counted from the front."""
    if dim is None or dim == [] or dim == ():  # type: ignore[comparison-overlap]
        return list(range(ndim))
    listed = [dim] if isinstance(dim, int) else dim
    return [d % ndim for d in listed] if ndim else []


def _restored(g: fl.Tensor, sizes: fl.Size, dim: int | list[int] | None, keepdim: bool) -> fl.Tensor:
    """The gradient of a reduction, with the reduced dimensions back as ones."""
    if keepdim or len(sizes) == 0:
        return g
    reduced = _dims(dim, len(sizes))
    return g.reshape([1 if d in reduced else n for d, n in enumerate(sizes)])


def _count(sizes: fl.Size, dim: int | list[int] | None) -> int:
    count = 1
    for d in _dims(dim, len(sizes)):
        count *= sizes[d]
    return count


@vjp("sum")
def sum_vjp(g: fl.Tensor, self_sizes: fl.Size, dim: int | list[int] | None, keepdim: bool) -> fl.Tensor:
    return _restored(g, self_sizes, dim, keepdim).expand(self_sizes)


@vjp("nansum")
def nansum_vjp(g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool) -> fl.Tensor:
    return _restored(g, self.shape, dim, keepdim) * self.isnan().logical_not()


@vjp("mean")
def mean_vjp(g: fl.Tensor, self_sizes: fl.Size, dim: int | list[int] | None, keepdim: bool) -> fl.Tensor:
    return (_restored(g, self_sizes, dim, keepdim) / _count(self_sizes, dim)).expand(self_sizes)


@vjp("prod")
def prod_vjp(g: fl.Tensor, self: fl.Tensor, dim: int | None, keepdim: bool) -> fl.Tensor:
    g = _restored(g, self.shape, dim, keepdim)
    self = self.to(g.dtype)  # that the product was taken in
    if self.numel() == 0:
        return fl.zeros_like(self)
    if dim is None:
        return (g.reshape(1) * _others(self.reshape(-1), 0)).reshape(self.shape)
    return g * (_others(self, dim) if self.dim() else fl.ones_like(self))


def _others(x: fl.Tensor, dim: int) -> fl.Tensor:
    """For each element the conjugate of the product of the others along a dimension: from the left times from the right."""
    n = x.shape[dim]
    one = fl.ones_like(x.narrow(dim, 0, 1))
    left = fl.cat([one, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    right = fl.cat([one, x.narrow(dim, 1, n - 1).flip([dim])], dim).cumprod(dim).flip([dim])
    return (left * right).conj()


@vjp("amax", "amin")
def extreme_vjp(g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool, out: fl.Tensor) -> fl.Tensor:
    return _shared(_restored(g, self.shape, dim, keepdim), self, _restored(out, self.shape, dim, keepdim), dim)


@vjp("max", "min")
def total_extreme_vjp(g: fl.Tensor, self: fl.Tensor, out: fl.Tensor) -> fl.Tensor:
    return _shared(g, self, out, None)


def _shared(g: fl.Tensor, x: fl.Tensor, extreme: fl.Tensor, dim: int | list[int] | None) -> fl.Tensor:
    """The gradient shared by the elements that reach the extreme."""
    hit = (x == extreme) | (x.isnan() & extreme.isnan())
    if x.dim() == 0:
        return fl.where(hit, g, 0)
    return fl.where(hit, g / hit.sum(_dims(dim, x.dim()), True), 0)


@vjp("max.dim", "min.dim")
def indexed_extreme_vjp(g0: fl.Tensor, self_sizes: fl.Size, dim: int, keepdim: bool, indices: fl.Tensor) -> fl.Tensor:
    return _put_back(g0, self_sizes, dim, keepdim, indices)


def _put_back(g: fl.Tensor, sizes: fl.Size, dim: int, keepdim: bool, indices: fl.Tensor) -> fl.Tensor:
    """The gradient at the place its value was taken from."""
    if len(sizes) == 0:
        return g
    if not keepdim:
        g, indices = g.unsqueeze(dim), indices.unsqueeze(dim)
    return fl.zeros(sizes, dtype=g.dtype, device=g.device).scatter(dim, indices, g)


def _variance_gradient(
    g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, correction: float, keepdim: bool
) -> fl.Tensor:
    count = _count(self.shape, dim)
    g = _restored(g, self.shape, dim, keepdim)
    free = count - correction
    factor = 2.0 / free if free > 0 else float("nan") if free == 0 else float("inf")
    mean = self.mean(_dims(dim, self.dim()), True) if self.dim() else self
    return g * factor * (self - mean)


def _correction(value: float | None) -> float:
    return 1 if value is None else value


def _deviation_gradient(
    g: fl.Tensor, self: fl.Tensor, out: fl.Tensor, dim: int | list[int] | None, correction: float, keepdim: bool
) -> fl.Tensor:
    safe = out.masked_fill(out == 0, 1)
    return _variance_gradient((g / (2 * safe)).masked_fill(out == 0, 0), self, dim, correction, keepdim)


@vjp("var")
def var_vjp(g: fl.Tensor, self: fl.Tensor, unbiased: bool) -> fl.Tensor:
    return _variance_gradient(g, self, None, int(unbiased), False)


@vjp("var.dim")
def var_dim_vjp(g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, unbiased: bool, keepdim: bool) -> fl.Tensor:
    return _variance_gradient(g, self, dim, int(unbiased), keepdim)


@vjp("var.correction")
def var_correction_vjp(
    g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, correction: float, keepdim: bool
) -> fl.Tensor:
    return _variance_gradient(g, self, dim, _correction(correction), keepdim)


@vjp("std")
def std_vjp(g: fl.Tensor, self: fl.Tensor, unbiased: bool, out: fl.Tensor) -> fl.Tensor:
    return _deviation_gradient(g, self, out, None, int(unbiased), False)


@vjp("std.dim")
def std_dim_vjp(
    g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, unbiased: bool, keepdim: bool, out: fl.Tensor
) -> fl.Tensor:
    return _deviation_gradient(g, self, out, dim, int(unbiased), keepdim)


@vjp("std.correction")
def std_correction_vjp(
    g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, correction: float, keepdim: bool, out: fl.Tensor
) -> fl.Tensor:
    return _deviation_gradient(g, self, out, dim, _correction(correction), keepdim)


def _with_mean(
    spread: Any, g1: fl.Tensor | None, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool
) -> fl.Tensor:
    """Adds what the mean contributes to the gradient of the spread (either may be missing)."""
    if g1 is None:
        return spread
    mean = (_restored(g1, self.shape, dim, keepdim) / _count(self.shape, dim)).expand(self.shape)
    return mean if spread is None else spread + mean


@vjp("var_mean")
def var_mean_vjp(g0: fl.Tensor | None, g1: fl.Tensor | None, self: fl.Tensor, unbiased: bool) -> fl.Tensor:
    return _with_mean(
        None if g0 is None else _variance_gradient(g0, self, None, int(unbiased), False), g1, self, None, False
    )


@vjp("var_mean.dim")
def var_mean_dim_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    self: fl.Tensor,
    dim: int | list[int] | None,
    unbiased: bool,
    keepdim: bool,
) -> fl.Tensor:
    spread = None if g0 is None else _variance_gradient(g0, self, dim, int(unbiased), keepdim)
    return _with_mean(spread, g1, self, dim, keepdim)


@vjp("var_mean.correction")
def var_mean_correction_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    self: fl.Tensor,
    dim: int | list[int] | None,
    correction: float,
    keepdim: bool,
) -> fl.Tensor:
    spread = None if g0 is None else _variance_gradient(g0, self, dim, _correction(correction), keepdim)
    return _with_mean(spread, g1, self, dim, keepdim)


@vjp("std_mean")
def std_mean_vjp(
    g0: fl.Tensor | None, g1: fl.Tensor | None, self: fl.Tensor, unbiased: bool, out0: fl.Tensor
) -> fl.Tensor:
    spread = None if g0 is None else _deviation_gradient(g0, self, out0, None, int(unbiased), False)
    return _with_mean(spread, g1, self, None, False)


@vjp("std_mean.dim")
def std_mean_dim_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    self: fl.Tensor,
    dim: int | list[int] | None,
    unbiased: bool,
    keepdim: bool,
    out0: fl.Tensor,
) -> fl.Tensor:
    spread = None if g0 is None else _deviation_gradient(g0, self, out0, dim, int(unbiased), keepdim)
    return _with_mean(spread, g1, self, dim, keepdim)


@vjp("std_mean.correction")
def std_mean_correction_vjp(
    g0: fl.Tensor | None,
    g1: fl.Tensor | None,
    self: fl.Tensor,
    dim: int | list[int] | None,
    correction: float,
    keepdim: bool,
    out0: fl.Tensor,
) -> fl.Tensor:
    spread = None if g0 is None else _deviation_gradient(g0, self, out0, dim, _correction(correction), keepdim)
    return _with_mean(spread, g1, self, dim, keepdim)


@vjp("_logsumexp")
def logsumexp_vjp(
    g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool, out: fl.Tensor
) -> fl.Tensor:
    out = _restored(out, self.shape, dim, keepdim)
    pivot = out.masked_fill(out.isinf(), 0)
    return _restored(g, self.shape, dim, keepdim) * (self - pivot).exp()


@vjp("_norm_0")
def norm_0_vjp(g: fl.Tensor, self_sizes: fl.Size) -> fl.Tensor:
    return fl.zeros(self_sizes, dtype=g.dtype, device=g.device)


@vjp("_norm_1")
def norm_1_vjp(g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool) -> fl.Tensor:
    return _restored(g, self.shape, dim, keepdim) * self.sgn()


@vjp("_norm_2")
def norm_2_vjp(g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool, out: fl.Tensor) -> fl.Tensor:
    out = _restored(out, self.shape, dim, keepdim)
    zero = out == 0
    return (self / out.masked_fill(zero, 1) * _restored(g, self.shape, dim, keepdim)).masked_fill(zero, 0)


@vjp("_norm_inf", "_norm_neg_inf")
def norm_inf_vjp(
    g: fl.Tensor, self: fl.Tensor, dim: int | list[int] | None, keepdim: bool, out: fl.Tensor
) -> fl.Tensor:
    size = self.abs()
    hit = (size == _restored(out, self.shape, dim, keepdim)) | size.isnan()
    count = hit.sum(_dims(dim, self.dim()), True) if self.dim() else hit
    return self.sgn() * (_restored(g, self.shape, dim, keepdim) * hit / count)


@vjp("_norm_p")
def norm_p_vjp(
    g: fl.Tensor, self: fl.Tensor, p: float, dim: int | list[int] | None, keepdim: bool, out: fl.Tensor
) -> fl.Tensor:
    g, out = _restored(g, self.shape, dim, keepdim), _restored(out, self.shape, dim, keepdim)
    size = self.abs()
    flat = size == 0
    if p < 1:
        derivative = self.sgn() * size.masked_fill(flat, 1).pow(p - 1).masked_fill(flat, 0)
        return derivative * g * out.masked_fill(out == 0, 1).pow(1 - p).masked_fill(out == 0, 0)
    derivative = self * size.masked_fill(flat, 1).pow(p - 2).masked_fill(flat, 0)
    return derivative * (g / out.masked_fill(out == 0, 1).pow(p - 1)).masked_fill(out == 0, 0)


# ---------------------------------------------------------------- norms

NORMS = {0.0: "_norm_0", 1.0: "_norm_1", 2.0: "_norm_2", INF: "_norm_inf", -INF: "_norm_neg_inf"}


def vector_norm(
    x: fl.Tensor, p: float, dim: list[int] | None = None, keepdim: bool = False, dtype: fl.dtype | None = None
) -> fl.Tensor:
    """The norm of order p over some dimensions (None or (): all)."""
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"[norm] expected a floating point or complex dtype, got {x.dtype}")
    name = NORMS.get(float(p))
    if name is not None:
        return getattr(fl._ops, name)(x, dim, keepdim, dtype=dtype)
    return fl._ops._norm_p(x, p, dim, keepdim, dtype=dtype)


@composite(
    "norm(Tensor self, any p='fro', int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor", out=True
)
def norm(
    self: fl.Tensor,
    p: float | str | None = "fro",
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: fl.dtype | None = None,
) -> fl.Tensor:
    if p == "nuc":
        return fl.linalg.matrix_norm(self, "nuc", dim if dim is not None else (-2, -1), keepdim, dtype=dtype)
    if isinstance(p, str):
        if p != "fro":
            raise RuntimeError(f"[norm] expected a number, 'fro' or 'nuc', got {p!r}")
        if dim is not None and len(dim) > 2:
            raise RuntimeError(f"[norm] expected at most 2 dimensions for the Frobenius norm, got {dim}")
    return vector_norm(self, 2.0 if p is None or isinstance(p, str) else p, dim, keepdim, dtype)


@composite(out=True)
def dist(self: fl.Tensor, other: fl.Tensor, p: Scalar = 2) -> fl.Tensor:
    return vector_norm(self - other, p)  # type: ignore[arg-type]


@composite(inplace=True, out=True)
def renorm(self: fl.Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> fl.Tensor:
    if isinstance(p, complex) or p <= 0:
        raise RuntimeError(f"[renorm] expected p to be a positive number, got {p}")
    if isinstance(maxnorm, complex) or maxnorm < 0:
        raise RuntimeError(f"[renorm] expected maxnorm of at least 0, got {maxnorm}")
    if self.dim() < 2:
        raise RuntimeError(f"[renorm] expected at least 2 dimensions, got {self.dim()}")
    slice_dim = dim + self.dim() if dim < 0 else dim
    if not 0 <= slice_dim < self.dim():
        raise IndexError(f"[renorm] expected dim in [{-self.dim()}, {self.dim() - 1}], got {dim}")
    others = [d for d in range(self.dim()) if d != slice_dim]
    wide = fl.float32 if self.dtype in (fl.float16, fl.bfloat16) else None
    size = vector_norm(self, p, others, True, wide)
    large = size > maxnorm
    if self.requires_grad:  # the norms of other slices, which may be NaN, take no part
        size = vector_norm(self.masked_fill(large.logical_not(), 0), p, others, True, wide)
    factor = fl.where(large, maxnorm / (size + 1e-7), fl.ones_like(size))
    return self * factor.to(self.dtype) if wide is None else (self.to(wide) * factor).to(self.dtype)


@composite(
    "normalize(Tensor input, float p=2.0, int[1]? dim=1, float eps=1e-12) -> Tensor", module="nn.functional", out=True
)
def normalize(input: fl.Tensor, p: float = 2.0, dim: list[int] | None = 1, eps: float = 1e-12) -> fl.Tensor:  # type: ignore[assignment]
    dims = [dim] if isinstance(dim, int) else dim
    return input / vector_norm(input, p, dims, True).clamp_min(eps)


# ---------------------------------------------------------------- comparing whole tensors


@composite()
def allclose(
    self: fl.Tensor, other: fl.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    return bool(fl.isclose(self, other, rtol, atol, equal_nan).all().item())


@composite()
def equal(self: fl.Tensor, other: fl.Tensor) -> bool:
    return self.shape == other.shape and bool(fl.eq(self, other).all().item())


@composite(function=False)
def sum_to_size(self: fl.Tensor, size: list[int]) -> fl.Tensor:
    shape, target = list(self.shape), list(size)
    lead = len(shape) - len(target)
    if lead < 0 or [a for a, b in zip(shape[lead:], target) if b not in (1, a)]:
        raise RuntimeError(f"[sum_to_size] expected a size that broadcasts to {tuple(shape)}, got {tuple(target)}")
    if not target:
        return fl.sum(self)
    dims = [*range(lead), *(i + lead for i, n in enumerate(target) if n == 1 and shape[i + lead] != 1)]
    return fl.sum(self, dims, keepdim=True).reshape(target) if dims else self.view(target)


# ---------------------------------------------------------------- what passes know of these operators

tag("averages", "mean")
tag("chooses", "amax amin max min")
tag("comparison", "allclose equal")
tag("core", "amax amin any argmax argmin max mean min prod sum var")
tag("recomputable", "logsumexp var")
autocast("float32", "prod")
autocast("float32", "dist logsumexp norm renorm sum", on="accelerator")
node("LinalgVectorNormBackward0", "_norm_2")
node("MaxBackward1", "max")
node("MinBackward1", "min")
