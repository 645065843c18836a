"""Indexing: `t[...]` with tensors, masks, and one index along one dimension.

The kernels are native (csrc/cpu/indexing.cpp); `index.Tensor` and `index_put_` are what `t[key]` and `t[key] = value`
become when the key holds tensors (csrc/python/indexing.cpp).
"""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.record import composite, native

native("index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", module="_ops", method=False)
native("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor", inplace=True)

# ---------------------------------------------------------------- masks

native("nonzero(Tensor self) -> Tensor", out=True, tags=("no_grad",))
native("_nonzero_numpy(Tensor self) -> Tensor[]", tags=("no_grad",))
native("nonzero_static(Tensor self, *, int size, int fill_value=-1) -> Tensor", out=True, tags=("no_grad",))
native("masked_select(Tensor self, Tensor mask) -> Tensor", out=True)
native("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor", inplace=True)


@composite("nonzero.as_tuple(Tensor self, *, bool as_tuple) -> any")
def nonzero_as_tuple(self: fl.Tensor, *, as_tuple: bool) -> fl.Tensor | tuple[fl.Tensor, ...]:
    return fl._ops._nonzero_numpy(self) if as_tuple else fl.nonzero(self)


@composite("argwhere(Tensor self) -> Tensor")
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


@composite("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor", out=True)
def take_along_dim(self: fl.Tensor, indices: fl.Tensor, dim: int | None = None) -> fl.Tensor:
    if indices.dtype not in (fl.int64, fl.int32):
        raise RuntimeError(f"[take_along_dim] expected indices of dtype int64 or int32, got {indices.dtype}")
    if dim is None:
        self, indices, dim = self.reshape(-1), indices.reshape(-1), 0
    if self.dim() != indices.dim():
        raise RuntimeError(
            f"[take_along_dim] expected as many dimensions in the indices as in the tensor, "
            f"got {tuple(indices.shape)} for {tuple(self.shape)}"
        )
    size = self.shape[dim] if self.dim() else 1
    dim = dim % max(self.dim(), 1)
    ours, theirs = list(self.shape), list(indices.shape)
    for d in range(self.dim()):
        if d != dim:
            common = fl.broadcast_shapes((ours[d],), (theirs[d],))[0]
            ours[d] = theirs[d] = common
    # Negative indices count from the end, as in NumPy.
    indices = fl.where(indices < 0, indices + size, indices)
    return fl.gather(self.expand(ours), dim, indices.expand(theirs))
