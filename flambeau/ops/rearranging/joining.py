"""Joining and cutting tensors: cat and stack, their NumPy-style relatives, split and unbind.

Cutting gives views, made in csrc/ops/splitting.cpp.
"""

from __future__ import annotations

import itertools
from typing import Any

import flambeau as fl
from flambeau.ops.record import composite, native, vjp

native("cat(Tensor[] tensors, int dim=0) -> Tensor", out=True)
native("stack(Tensor[] tensors, int dim=0) -> Tensor", out=True)


@vjp("cat")
def cat_vjp(g, tensors_sizes, dim, needs):
    grads, at = [], 0
    for sizes, needed in zip(tensors_sizes, needs[0]):
        if len(sizes) == 1 and sizes[0] == 0 and g.dim() != 1:  # an empty vector joins anything
            grads.append(fl.zeros(sizes, dtype=g.dtype, device=g.device) if needed else None)
            continue
        length = sizes[dim]
        grads.append(g.narrow(dim, at, length) if needed else None)
        at += length
    return (grads,)


@vjp("stack")
def stack_vjp(g, tensors_sizes, dim, needs):
    return ([g.select(dim, i) if needed else None for i, needed in enumerate(needs[0])],)


@composite("concat(Tensor[] tensors, int dim=0) -> Tensor", out=True)
@composite("concatenate(Tensor[] tensors, int dim=0) -> Tensor", out=True)
def concatenate(tensors: list[fl.Tensor], dim: int = 0) -> fl.Tensor:
    return fl.cat(tensors, dim)


@composite("hstack(Tensor[] tensors) -> Tensor", out=True)
def hstack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError("[hstack] expected at least one tensor, got an empty list")
    tensors = [fl.atleast_1d(t) for t in tensors]
    return fl.cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@composite("vstack(Tensor[] tensors) -> Tensor", out=True)
@composite("row_stack(Tensor[] tensors) -> Tensor", out=True)
def vstack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError("[vstack] expected at least one tensor, got an empty list")
    return fl.cat([fl.atleast_2d(t) for t in tensors], 0)


@composite("dstack(Tensor[] tensors) -> Tensor", out=True)
def dstack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError("[dstack] expected at least one tensor, got an empty list")
    return fl.cat([fl.atleast_3d(t) for t in tensors], 2)


@composite("column_stack(Tensor[] tensors) -> Tensor", out=True)
def column_stack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError("[column_stack] expected at least one tensor, got an empty list")
    return fl.cat([t if t.dim() >= 2 else t.reshape(-1, 1) for t in tensors], 1)


# ---------------------------------------------------------------- cutting

native("split.Tensor(Tensor self, int split_size, int dim=0) -> Tensor[]", tags=("view",))
native("split.sizes(Tensor self, int[] split_size, int dim=0) -> Tensor[]", tags=("view",))
native("split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]", tags=("view",))
native("unsafe_split.Tensor(Tensor self, int split_size, int dim=0) -> Tensor[]")
native("unsafe_split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]")
native("chunk(Tensor self, int chunks, int dim=0) -> Tensor[]")
native("unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]")
native("tensor_split.tensor_indices_or_sections(Tensor self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor[]")
native("tensor_split.sections(Tensor self, int sections, int dim=0) -> Tensor[]")
native("tensor_split.indices(Tensor self, int[] indices, int dim=0) -> Tensor[]")
native("hsplit.int(Tensor self, int sections) -> Tensor[]")
native("hsplit.array(Tensor self, int[] indices) -> Tensor[]")
native("vsplit.int(Tensor self, int sections) -> Tensor[]")
native("vsplit.array(Tensor self, int[] indices) -> Tensor[]")
native("dsplit.int(Tensor self, int sections) -> Tensor[]")
native("dsplit.array(Tensor self, int[] indices) -> Tensor[]")
native("unbind.int(Tensor self, int dim=0) -> Tensor[]", tags=("view",))
native("narrow.Tensor(Tensor self, int dim, Tensor start, int length) -> Tensor")
native("narrow(Tensor self, int dim, int start, int length) -> Tensor")


def _joined(g, sizes, lengths, dim, dtype, device):
    """The gradients of pieces along a dimension, with zeros for those that have none."""
    whole = list(sizes)
    parts = []
    for part, length in zip(g, lengths):
        if part is None:
            whole[dim] = length
            part = fl.zeros(whole, dtype=dtype, device=device)
        parts.append(part)
    return fl.cat(parts, dim)


@vjp("split.Tensor")
def split_vjp(g, self_sizes, self_dtype, self_device, split_size, dim):
    n = self_sizes[dim]
    lengths = [min(split_size, n - i * split_size) for i in range(len(g))]
    return _joined(g, self_sizes, lengths, dim, self_dtype, self_device)


@vjp("split.sizes")
def split_sizes_vjp(g, self_sizes, self_dtype, self_device, split_size, dim):
    return _joined(g, self_sizes, split_size, dim, self_dtype, self_device)


@vjp("split_with_sizes")
def split_with_sizes_vjp(g, self_sizes, self_dtype, self_device, split_sizes, dim):
    return _joined(g, self_sizes, split_sizes, dim, self_dtype, self_device)


@vjp("unbind.int")
def unbind_vjp(g, self_sizes, self_dtype, self_device, dim):
    if not g:
        return fl.zeros(self_sizes, dtype=self_dtype, device=self_device)
    dim = dim % len(self_sizes)
    shape = [n for d, n in enumerate(self_sizes) if d != dim]
    return fl.stack([fl.zeros(shape, dtype=self_dtype, device=self_device) if x is None else x for x in g], dim)


@composite("split.function(Tensor tensor, any split_size_or_sections, int dim=0) -> Tensor[]", method=False)
def split(tensor: fl.Tensor, split_size_or_sections: int | list[int], dim: int = 0) -> tuple[fl.Tensor, ...]:
    return tensor.split(split_size_or_sections, dim)


# The indices under the name that PyTorch gives them in the functions of NumPy's style.
@composite("tensor_split.indices_or_sections(Tensor self, any indices_or_sections, int dim=0) -> Tensor[]")
def tensor_split(self: fl.Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[fl.Tensor, ...]:
    if isinstance(indices_or_sections, fl.Tensor):
        return fl.tensor_split(self, tensor_indices_or_sections=indices_or_sections, dim=dim)
    if isinstance(indices_or_sections, int):
        return fl.tensor_split(self, sections=indices_or_sections, dim=dim)
    if isinstance(indices_or_sections, (tuple, list)):
        return fl.tensor_split(self, indices=indices_or_sections, dim=dim)
    raise TypeError(f"[tensor_split] expected an int, ints or a Tensor, got {type(indices_or_sections).__name__}")


# ---------------------------------------------------------------- broadcasting

native("broadcast_to(Tensor self, int[] size) -> Tensor")


@composite("broadcast_tensors(Tensor[] tensors) -> Tensor[]")
def broadcast_tensors(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    shape = fl.broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


@composite("atleast_1d(Tensor self) -> Tensor", method=False)
def atleast_1d(self: fl.Tensor) -> fl.Tensor:
    return self if self.dim() else self.reshape(1)


@composite("atleast_2d(Tensor self) -> Tensor", method=False)
def atleast_2d(self: fl.Tensor) -> fl.Tensor:
    if self.dim() == 0:
        return self.reshape(1, 1)
    return self.unsqueeze(0) if self.dim() == 1 else self


@composite("atleast_3d(Tensor self) -> Tensor", method=False)
def atleast_3d(self: fl.Tensor) -> fl.Tensor:
    if self.dim() == 0:
        return self.reshape(1, 1, 1)
    if self.dim() == 1:
        return self.unsqueeze(0).unsqueeze(-1)
    return self.unsqueeze(-1) if self.dim() == 2 else self


@composite("atleast_1d.Sequence(Tensor[] tensors) -> Tensor[]")
def atleast_1d_all(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    return tuple(atleast_1d(t) for t in tensors)


@composite("atleast_2d.Sequence(Tensor[] tensors) -> Tensor[]")
def atleast_2d_all(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    return tuple(atleast_2d(t) for t in tensors)


@composite("atleast_3d.Sequence(Tensor[] tensors) -> Tensor[]")
def atleast_3d_all(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    return tuple(atleast_3d(t) for t in tensors)


# ---------------------------------------------------------------- products of vectors


@composite("meshgrid(Tensor[] tensors, *, str? indexing=None) -> Tensor[]")
def meshgrid(tensors: list[fl.Tensor], *, indexing: str | None = None) -> tuple[fl.Tensor, ...]:
    if not tensors:
        raise RuntimeError("[meshgrid] expected at least one tensor, got none")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f"[meshgrid] expected indexing to be 'ij' or 'xy', got {indexing!r}")
    for t in tensors:
        if t.dim() > 1:
            raise RuntimeError(f"[meshgrid] expected 0-d or 1-d tensors, got shape {tuple(t.shape)}")
        if t.dtype != tensors[0].dtype or t.device != tensors[0].device:
            raise RuntimeError(
                f"[meshgrid] expected tensors of one dtype and device, got {tensors[0].dtype} and {t.dtype}"
            )
    swap = indexing == "xy" and len(tensors) >= 2
    tensors = list(tensors)
    if swap:
        tensors[0], tensors[1] = tensors[1], tensors[0]
    shape = [t.numel() for t in tensors]
    grids = []
    for d, t in enumerate(tensors):
        ones = [1] * len(shape)
        ones[d] = shape[d]
        grids.append(t.view(ones).expand(shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@composite("cartesian_prod(Tensor[] tensors) -> Tensor")
def cartesian_prod(tensors: list[fl.Tensor]) -> fl.Tensor:
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"[cartesian_prod] expected vectors, got shape {tuple(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return fl.stack([g.flatten() for g in fl.meshgrid(*tensors, indexing="ij")], 1)


@composite("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor")
def combinations(self: fl.Tensor, r: int = 2, with_replacement: bool = False) -> fl.Tensor:
    if self.dim() != 1:
        raise RuntimeError(f"[combinations] expected a vector, got shape {tuple(self.shape)}")
    if r < 0:
        raise RuntimeError(f"[combinations] expected a length that is not negative, got {r}")
    if r == 0:
        return fl.empty(0, dtype=self.dtype, device=self.device)
    n = self.numel()
    positions = fl.arange(n, device=self.device)
    grids = fl.meshgrid(*[positions] * r, indexing="ij")
    keep = fl.ones_like(grids[0], dtype=fl.bool)
    for a, b in itertools.pairwise(grids):
        keep = keep & ((a <= b) if with_replacement else (a < b))
    columns = [self.index_select(0, g.masked_select(keep)) for g in grids]
    return fl.stack(columns, 1)


@composite("block_diag(Tensor[] tensors) -> Tensor")
def block_diag(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        return fl.empty(1, 0)
    for i, t in enumerate(tensors):
        if t.dim() > 2:
            raise RuntimeError(
                f"[block_diag] expected at most 2 dimensions, got shape {tuple(t.shape)} at position {i}"
            )
    blocks = [fl.atleast_2d(t) for t in tensors]
    width = sum(b.shape[1] for b in blocks)
    dtype = fl.cat([b.reshape(-1)[:0] for b in blocks]).dtype
    rows, at = [], 0
    for b in blocks:
        rows.append(fl.constant_pad_nd(b.to(dtype), [at, width - at - b.shape[1]]))
        at += b.shape[1]
    return fl.cat(rows, 0)
