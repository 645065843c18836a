"""Sums of sparse tensors.

`torch.sum` is a function of all elements, also of those that are not there: its gradient is dense. `sparse.sum` is one of the
elements that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.autograd.function import Function
from flambeau.sparse.construction import BLOCKED, coalesce, is_sparse, parts
from flambeau.sparse.kernels import kernel, like_layout, wrapped


def sum_of_elements(self: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum, with gradients for the elements that are there."""
    indices, values = parts(self)
    dims = self.dim()
    if dim is None or (isinstance(dim, Sequence) and len(dim) == 0):
        return values.sum(dtype=dtype)
    gone = {wrapped("sum", d, dims) for d in ([dim] if isinstance(dim, int) else dim)}
    split = indices.shape[0]
    inside = [d - split + 1 for d in sorted(gone) if d >= split]
    values = values.sum(inside, keepdim=keepdim, dtype=dtype) if inside else values
    if dtype is not None:
        values = values.to(dtype)
    elif not (values.is_floating_point() or values.is_complex()):
        values = values.long()
    remaining = [d for d in range(split) if d not in gone]
    compressed = keepdim and self.layout is not _C.sparse_coo
    if not remaining and not compressed:
        total = values.sum(0)
        return total.reshape([1] * split + list(total.shape)) if keepdim else total
    rows, size = indices[remaining], [self.shape[d] for d in remaining]
    if keepdim:
        rows = fl.stack([indices[d] if d not in gone else fl.zeros_like(indices[d]) for d in range(split)])
        size = [1 if d in gone else self.shape[d] for d in range(split)]
    total = coalesce(_ops._sparse_coo(rows, values, [*size, *values.shape[1:]]))
    return like_layout(total, self) if compressed and self.layout not in BLOCKED else total


class SumOfAll(Function):
    """The sum, with gradients for all places."""

    @staticmethod
    def forward(ctx: Any, self: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
        ctx.shape, ctx.dtype = self.shape, self.dtype
        ctx.gone = None if dim is None or (isinstance(dim, Sequence) and len(dim) == 0) else dim
        ctx.keepdim = keepdim
        return sum_of_elements(self, dim, keepdim, dtype=dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gradient = grads[0].to_dense() if is_sparse(grads[0]) else grads[0]
        gradient = gradient.to(ctx.dtype)
        if ctx.gone is not None and not ctx.keepdim:
            dims = [ctx.gone] if isinstance(ctx.gone, int) else ctx.gone
            for dim in sorted(wrapped("sum", d, len(ctx.shape)) for d in dims):
                gradient = gradient.unsqueeze(dim)
        return gradient.expand(ctx.shape).contiguous(), None, None, None


@kernel("sum")
def sum(self: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    if self.requires_grad and _C.is_grad_enabled():
        return SumOfAll.apply(self, dim, keepdim, dtype)
    return sum_of_elements(self, dim, keepdim, dtype=dtype)
