"""Making sparse tensors of sizes, and like other sparse tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau import _C, _ops
from flambeau._C import Tensor
from flambeau.sparse.construction import BLOCKED, COLUMNS, empty_coo, with_values
from flambeau.sparse.kernels import kernel, zeros_like


def zeros(size: Any, dtype: Any, layout: Any, device: Any) -> Tensor:
    """Of these sizes, with no element that is there."""
    size = list(size)
    if layout is _C.sparse_coo:
        return empty_coo(size, len(size), dtype, device)
    name = str(layout).rpartition(".")[2]
    if layout in BLOCKED:
        raise RuntimeError(f"[zeros] expected a layout without blocks, whose size is not known, got {name}")
    if len(size) < 2:
        words = "Only batched sparse compressed (non-block) tensors are supported"
        raise RuntimeError(
            f"[zeros] expected at least 2 dimensions for {name}, got {len(size)}: {words}, but got size {size}"
        )
    batch, lines = size[:-2], size[-1 if layout in COLUMNS else -2]
    starts = fl.zeros([*batch, lines + 1], dtype=fl.int64, device=device)
    places = fl.zeros([*batch, 0], dtype=fl.int64, device=device)
    values = fl.zeros([*batch, 0], dtype=dtype, device=device)
    return _ops._sparse_compressed(starts, places, values, size, layout in COLUMNS, False)


def like(name: str) -> None:
    """A tensor of the sizes of a sparse one; in a compressed layout it has values where the other has them."""

    def make(
        self: Tensor, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any
    ) -> Tensor:
        function: Callable[..., Tensor] = getattr(fl, name)
        dtype, device = dtype or self.dtype, device or self.device
        if layout is _C.strided:
            return function(fl.empty(self.shape, dtype=dtype, device=device), *args, **options)
        if self.layout is _C.sparse_coo or layout not in (None, self.layout):
            raise NotImplementedError(
                f"[{name}] expected layout=torch.strided for values that are not zero, got {layout or self.layout}"
            )
        options = {key: value for key, value in options.items() if key != "memory_format"}
        return with_values(self, function(_ops._sparse_values(self), *args, dtype=dtype, device=device, **options))

    kernel(name)(make)


like("ones_like")
like("full_like")
like("rand_like")
like("randn_like")
like("randint_like")


@kernel("new_zeros", "new_empty")
def new_zeros(
    self: Tensor, size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any
) -> Tensor:
    dtype, device, layout = dtype or self.dtype, device or self.device, layout or self.layout
    return fl.zeros(size, dtype=dtype, device=device, layout=layout)


@kernel("zeros.out")
def zeros_out(size: Any, *, out: Tensor, **options: Any) -> Tensor:
    return _ops._sparse_assign_(out, zeros(size, out.dtype, out.layout, out.device))


@kernel("fill_")
def fill_(self: Tensor, value: Any) -> Tensor:
    """Every element that is there, in a compressed layout; with zero, none is left."""
    if self.layout is not _C.sparse_coo:
        return _ops._sparse_assign_(self, with_values(self, _ops._sparse_values(self).clone().fill_(value)))
    if value != 0:
        raise RuntimeError(f"[fill_] expected 0, which a sparse tensor has everywhere else, got {value}")
    return _ops._sparse_assign_(self, zeros_like(self))
