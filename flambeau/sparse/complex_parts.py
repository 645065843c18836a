"""Complex elements of sparse tensors as pairs of numbers in a last dense dimension, and back."""

from __future__ import annotations

from collections.abc import Callable

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.sparse.construction import parts
from flambeau.sparse.kernels import kernel, sparse_dims


def _of_values(op: str, self: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
    if self.layout is not _C.sparse_coo:
        raise NotImplementedError(f"[{op}] expected a strided tensor or one of sparse_coo, got {self.layout}")
    indices, values = parts(self)
    changed = change(values)
    size = [*self.shape[: sparse_dims(self)], *changed.shape[1:]]
    return _ops._sparse_coo(indices, changed, size, _ops._sparse_is_coalesced(self))


@kernel("view_as_real")
def view_as_real(self: Tensor) -> Tensor:
    return _of_values("view_as_real", self, fl.view_as_real)


@kernel("view_as_complex")
def view_as_complex(self: Tensor) -> Tensor:
    return _of_values("view_as_complex", self, fl.view_as_complex)
