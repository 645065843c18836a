"""The views under names that end in `_copy`: what the view shows, in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops.record import composite


def _copying(schema: str, view: Callable[..., Any], method: bool = False) -> None:
    """Records `schema` as the clone of a view; lists of views are cloned one by one."""

    @composite(schema, method=method, out=not schema.endswith("[]"))
    def kernel(*args: Any, **kwargs: Any) -> Any:
        shown = view(*args, **kwargs)
        if isinstance(shown, fl.Tensor):
            return shown.clone(memory_format=fl.contiguous_format)
        return tuple(t.clone(memory_format=fl.contiguous_format) for t in shown)


_copying("alias_copy(Tensor self) -> Tensor", lambda self: self)
_copying("detach_copy(Tensor self) -> Tensor", lambda self: self.detach())
_copying(
    "as_strided_copy(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    lambda self, *geometry: self.as_strided(*geometry),
)
_copying(
    "diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    lambda self, *which: self.diagonal(*which),
)
_copying(
    "expand_copy(Tensor self, int[] size, *, bool implicit=False) -> Tensor",
    lambda self, size, implicit: self.expand(size),
)
_copying("permute_copy(Tensor self, int[] dims) -> Tensor", lambda self, dims: self.permute(dims))
_copying("select_copy(Tensor self, int dim, int index) -> Tensor", lambda self, dim, index: self.select(dim, index))
_copying(
    "slice_copy(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    lambda self, *bounds: fl._ops.slice(self, *bounds),
)
_copying("squeeze_copy(Tensor self) -> Tensor", lambda self: self.squeeze())
_copying("squeeze_copy.dim(Tensor self, int dim) -> Tensor", lambda self, dim: self.squeeze(dim))
_copying("squeeze_copy.dims(Tensor self, int[] dim) -> Tensor", lambda self, dim: self.squeeze(dim))
_copying("unsqueeze_copy(Tensor self, int dim) -> Tensor", lambda self, dim: self.unsqueeze(dim))
_copying("t_copy(Tensor self) -> Tensor", lambda self: self.t())
_copying("transpose_copy(Tensor self, int dim0, int dim1) -> Tensor", lambda self, a, b: self.transpose(a, b))
_copying(
    "unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor", lambda self, *window: self.unfold(*window)
)
_copying("view_copy(Tensor self, int[] size) -> Tensor", lambda self, size: self.view(size))
_copying("view_copy.dtype(Tensor self, dtype dtype) -> Tensor", lambda self, dtype: self.view(dtype))
_copying("view_as_real_copy(Tensor self) -> Tensor", lambda self: fl.view_as_real(self))
_copying("view_as_complex_copy(Tensor self) -> Tensor", lambda self: fl.view_as_complex(self))
_copying("unbind_copy.int(Tensor self, int dim=0) -> Tensor[]", lambda self, dim: self.unbind(dim))
_copying(
    "split_copy.Tensor(Tensor self, int split_size, int dim=0) -> Tensor[]",
    lambda self, size, dim: self.split(size, dim),
)
_copying(
    "split_with_sizes_copy(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
    lambda self, sizes, dim: self.split_with_sizes(sizes, dim),
)


def _copying_into(schema: str, view: Callable[..., Any]) -> None:
    """Records `schema`, which copies the views of a tensor into those of a list."""

    @composite(schema, method=False)
    def kernel(*args: Any, out: Any) -> None:
        op = schema.partition(".")[0]
        if fl.is_grad_enabled() and any(t.requires_grad for t in (args[0], *out)):
            raise RuntimeError(
                f"[{op}] expected tensors without gradient for out=, got one with: {op}(): functions with out=... arguments don't "
                "support automatic differentiation, but one of the arguments requires grad."
            )
        shown = view(*args)
        if len(shown) != len(out):
            raise RuntimeError(
                f"[{op}] expected {len(shown)} tensors for out, got {len(out)}: expected an out= argument of "
                f"size {len(shown)}, got size {len(out)}"
            )
        for one, target in zip(shown, out):
            if target.shape != one.shape:
                target.resize_(one.shape)
            target.copy_(one)


_copying_into(
    "unbind_copy.int_out(Tensor self, int dim=0, *, Tensor(!)[] out) -> ()", lambda self, dim: self.unbind(dim)
)
_copying_into(
    "split_copy.Tensor_out(Tensor self, int split_size, int dim=0, *, Tensor(!)[] out) -> ()",
    lambda self, size, dim: self.split(size, dim),
)
_copying_into(
    "split_with_sizes_copy.out(Tensor self, int[] split_sizes, int dim=0, *, Tensor(!)[] out) -> ()",
    lambda self, sizes, dim: self.split_with_sizes(sizes, dim),
)


@composite(out=True)
def narrow_copy(self: fl.Tensor, dim: int, start: int, length: int) -> fl.Tensor:
    # Unlike narrow, PyTorch reports a dimension that is too large as a RuntimeError here.
    if dim >= self.dim():
        raise RuntimeError(f"[narrow_copy] expected a dimension of a {self.dim()}-d tensor, got {dim}")
    return self.narrow(dim, start, length).clone(memory_format=fl.contiguous_format)
