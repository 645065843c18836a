"""Indexing: `t[...]` with tensors, masks, and one index along one dimension.

The kernels are native (csrc/ops/indexing.cpp); `index.Tensor` and `index_put_` are what `t[key]` and `t[key] = value`
become when the key holds tensors (csrc/python/indexing.cpp).
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau.ops.geometry import dimension
from flambeau.ops.record import autocast, composite, native, tag, vjp

native("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", module="_ops", method=False)
native("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor", inplace=True)


@vjp("index.Tensor")
def index_vjp(g: fl.Tensor, self_sizes: fl.Size, indices: list[fl.Tensor | None]) -> tuple[fl.Tensor | None, ...]:
    return fl.zeros(self_sizes, dtype=g.dtype, device=g.device).index_put(indices, g, accumulate=True), None


@vjp("index_put")
def index_put_vjp(
    g: fl.Tensor, indices: list[fl.Tensor | None], values_sizes: fl.Size, accumulate: bool, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    grad_self = g
    if needs[0] and not accumulate:
        grad_self = g.index_put(indices, fl.zeros((), dtype=g.dtype, device=g.device))
    return (
        grad_self if needs[0] else None,
        None,
        fl._ops.index(g, indices).sum_to_size(values_sizes) if needs[2] else None,
    )


# ---------------------------------------------------------------- masks

native("nonzero(Tensor self) -> Tensor", out=True, tags=("no_grad",))
native("_nonzero_numpy(Tensor self) -> Tensor[]", tags=("no_grad",))
native("nonzero_static(Tensor self, *, int size, int fill_value=-1) -> Tensor", out=True, tags=("no_grad",))
native("masked_select(Tensor self, Tensor mask) -> Tensor", out=True)
native("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", inplace=True)


@vjp("masked_select")
def masked_select_vjp(g: fl.Tensor, self_sizes: fl.Size, mask: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    shape = fl.broadcast_shapes(self_sizes, mask.shape)
    full = fl.zeros(shape, dtype=g.dtype, device=g.device).masked_scatter(mask.expand(shape), g)
    return full.sum_to_size(self_sizes), None


@vjp("masked_scatter")
def masked_scatter_vjp(
    g: fl.Tensor, mask: fl.Tensor, source_sizes: fl.Size, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    grad_source = None
    if needs[2]:
        picked = g.masked_select(mask)
        missing = math.prod(source_sizes) - picked.numel()
        grad_source = fl.constant_pad_nd(picked, [0, missing]).reshape(source_sizes)
    return g.masked_fill(mask, 0) if needs[0] else None, None, grad_source


@composite("nonzero.as_tuple")
def nonzero_as_tuple(self: fl.Tensor, *, as_tuple: bool) -> Any:
    return fl._ops._nonzero_numpy(self) if as_tuple else fl.nonzero(self)


@composite()
def argwhere(self: fl.Tensor) -> fl.Tensor:
    return fl.nonzero(self)


# ---------------------------------------------------------------- one index along one dimension

native("index_select(Tensor self, int dim, Tensor index) -> Tensor", out=True)
native(
    "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor", inplace=True, out=True
)
native("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor", inplace=True, out=True)
native("index_fill(Tensor self, int dim, Tensor index, Tensor|Scalar value) -> Tensor", inplace=True)
native(
    "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor",
    inplace=True,
    out=True,
)

# ---------------------------------------------------------------- the tensor as one long row

native("take(Tensor self, Tensor index) -> Tensor", out=True)
native("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor", inplace=True)


@vjp("index_select")
def index_select_vjp(g: fl.Tensor, self_sizes: fl.Size, dim: int, index: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return fl.zeros(self_sizes, dtype=g.dtype, device=g.device).index_add(dim, index, g), None


@vjp("index_add")
def index_add_vjp(
    g: fl.Tensor, dim: int, index: fl.Tensor, source_sizes: fl.Size, alpha: Any, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    picked = None
    if needs[2]:
        picked = g.index_select(dim, index).reshape(source_sizes)
        if alpha != 1:
            picked = picked * (alpha.conjugate() if isinstance(alpha, complex) else alpha)
    return g, None, picked


@vjp("index_copy")
def index_copy_vjp(
    g: fl.Tensor, dim: int, index: fl.Tensor, source_sizes: fl.Size, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    return (
        g.index_fill(dim, index, 0) if needs[0] else None,
        None,
        g.index_select(dim, index).reshape(source_sizes) if needs[2] else None,
    )


@vjp("index_fill")
def index_fill_vjp(g: fl.Tensor, dim: int, index: fl.Tensor, needs: list[bool]) -> tuple[fl.Tensor | None, ...]:
    rest = g.index_fill(dim, index, 0)
    return rest, None, (g - rest).sum() if needs[2] else None


@vjp("index_reduce")
def index_reduce_vjp(
    g: fl.Tensor,
    self: fl.Tensor,
    dim: int,
    index: fl.Tensor,
    source: fl.Tensor,
    reduce: str,
    include_self: bool,
    out: fl.Tensor,
    needs: list[bool],
) -> tuple[fl.Tensor | None, ...]:
    def spread(x: fl.Tensor) -> fl.Tensor:
        return x.index_select(dim, index).reshape(source.shape)

    if reduce == "prod":
        return _product_gradients(
            g, self, source, include_self, needs, lambda t, x: t.index_reduce(dim, index, x, "prod"), spread, index, dim
        )
    ones = fl.ones_like(source)
    if reduce == "mean":
        start = fl.ones_like(g) if include_self else fl.zeros_like(g)
        count = start.index_add(dim, index, ones)
        count = count.masked_fill(count == 0, 1)
        grad_self = (g / count) if include_self else (g / count).index_fill(dim, index, 0)
        return grad_self if needs[0] else None, None, spread(g / count) if needs[2] else None
    hit_self = (self == out).to(g.dtype)
    hit_source = (source == spread(out)).to(g.dtype)
    count = fl.zeros_like(g).index_add(dim, index, hit_source) + hit_self
    share = g / count.masked_fill(count == 0, 1)
    grad_self = share * hit_self
    if not include_self:
        grad_self = grad_self.index_fill(dim, index, 0)
    return grad_self if needs[0] else None, None, spread(share) * hit_source if needs[2] else None


def _conj(x: fl.Tensor) -> fl.Tensor:
    return x.conj() if x.is_complex() else x


def _product_gradients(
    g: fl.Tensor,
    self: fl.Tensor,
    source: fl.Tensor,
    include_self: bool,
    needs: list[bool],
    multiply: Any,
    spread: Any,
    index: fl.Tensor,
    dim: int,
) -> tuple[fl.Tensor | None, ...]:
    """Gradients of products gathered by index; where a single factor is zero, the product of the others is what counts."""
    base = self if include_self else self.index_fill(dim, index, 1)
    zero_self, zero_source = base == 0, source == 0
    counted = zero_self.to(g.dtype).index_add(dim, index, zero_source.to(g.dtype))
    others = multiply(base.masked_fill(zero_self, 1), source.masked_fill(zero_source, 1))
    alive = others.masked_fill(counted != 0, 0)  # no zeros: the whole product
    single = others.masked_fill(counted != 1, 0)  # one zero: the product of the rest, for that factor
    grad_self = g * _conj(fl.where(zero_self, single, alive / base.masked_fill(zero_self, 1)))
    if not include_self:
        grad_self = grad_self.index_fill(dim, index, 0)
    rest = fl.where(zero_source, spread(single), spread(alive) / source.masked_fill(zero_source, 1))
    grad_source = spread(g) * _conj(rest)
    return grad_self if needs[0] else None, None, grad_source if needs[2] else None


@vjp("take")
def take_vjp(g: fl.Tensor, self_sizes: fl.Size, index: fl.Tensor) -> tuple[fl.Tensor | None, ...]:
    return fl.zeros(self_sizes, dtype=g.dtype, device=g.device).put(index, g, accumulate=True), None


@vjp("put")
def put_vjp(
    g: fl.Tensor, index: fl.Tensor, source_sizes: fl.Size, accumulate: bool, needs: list[bool]
) -> tuple[fl.Tensor | None, ...]:
    grad_self = (
        g if accumulate or not needs[0] else g.put(index, fl.zeros(source_sizes, dtype=g.dtype, device=g.device))
    )
    return grad_self, None, g.take(index).reshape(source_sizes) if needs[2] else None


@composite(out=True)
def take_along_dim(self: fl.Tensor, indices: fl.Tensor, dim: int | None = None) -> fl.Tensor:
    if indices.dtype != fl.int64:
        raise RuntimeError(
            f"[take_along_dim] expected indices of dtype int64, got {indices.dtype}: dtype of indices should be Long"
        )
    if dim is None:
        self, indices, dim = self.reshape(-1), indices.reshape(-1), 0
    if self.dim() != indices.dim():
        raise RuntimeError(
            f"[take_along_dim] expected as many dimensions in the indices as in the tensor, "
            f"got {tuple(indices.shape)} for {tuple(self.shape)}: torch.take_along_dim(): input and indices should have the "
            "same number of dimensions"
        )
    dim = dimension(dim, self.dim())
    size = self.shape[dim] if self.dim() else 1
    ours, theirs = list(self.shape), list(indices.shape)
    for d in range(self.dim()):
        if d != dim:
            common = fl.broadcast_shapes((ours[d],), (theirs[d],))[0]
            ours[d] = theirs[d] = common
    # Negative indices count from the end, as in NumPy.
    indices = fl.where(indices < 0, indices + size, indices)
    return fl.gather(self.expand(ours), dim, indices.expand(theirs))


# ---------------------------------------------------------------- what passes know of these operators

tag("changes_part", "index_add index_copy index_put")
tag("core", "index index_put index_select masked_scatter nonzero")
tag("wide_complex", "index_add")
tag("data_dependent", "_nonzero_numpy masked_select nonzero")
tag("mixed_devices", "index index_put")
tag("moves", "index_select take_along_dim")
tag("recomputable", "index_select")
autocast("widest", "index_put", on="accelerator")
autocast("widest", "index_copy", on="cpu")
