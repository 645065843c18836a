"""Joining tensors: cat and stack, their NumPy-style relatives, and combinations of the elements of vectors."""

from __future__ import annotations

import functools
import itertools
import warnings

import flambeau as fl
from flambeau.ops.record import autocast, composite, native, tag, vjp

native("cat(Tensor[] tensors, int dim=0) -> Tensor", out=True)
native("stack(Tensor[] tensors, int dim=0) -> Tensor", out=True)


@vjp("cat")
def cat_vjp(
    g: fl.Tensor, tensors_sizes: list[fl.Size], dim: int, needs: list[list[bool]]
) -> tuple[list[fl.Tensor | None]]:
    grads: list[fl.Tensor | None] = []
    at = 0
    for sizes, needed in zip(tensors_sizes, needs[0]):
        if len(sizes) == 1 and sizes[0] == 0 and g.dim() != 1:  # an empty vector joins anything
            grads.append(fl.zeros(sizes, dtype=g.dtype, device=g.device) if needed else None)
            continue
        length = sizes[dim]
        grads.append(g.narrow(dim, at, length) if needed else None)
        at += length
    return (grads,)


@vjp("stack")
def stack_vjp(
    g: fl.Tensor, tensors_sizes: list[fl.Size], dim: int, needs: list[list[bool]]
) -> tuple[list[fl.Tensor | None]]:
    return ([g.select(dim, i) if needed else None for i, needed in enumerate(needs[0])],)


@composite("concat", out=True)
@composite(out=True)
def concatenate(tensors: list[fl.Tensor], dim: int = 0) -> fl.Tensor:
    return fl.cat(tensors, dim)


@composite(out=True)
def hstack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError(
            "[hstack] expected at least one tensor, got an empty list: hstack expects a non-empty TensorList"
        )
    tensors = [fl.atleast_1d(t) for t in tensors]
    return fl.cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@composite(out=True)
@composite("row_stack", out=True)
def vstack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError(
            "[vstack] expected at least one tensor, got an empty list: vstack expects a non-empty TensorList"
        )
    return fl.cat([fl.atleast_2d(t) for t in tensors], 0)


@composite(out=True)
def dstack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError(
            "[dstack] expected at least one tensor, got an empty list: dstack expects a non-empty TensorList"
        )
    return fl.cat([fl.atleast_3d(t) for t in tensors], 2)


@composite(out=True)
def column_stack(tensors: list[fl.Tensor]) -> fl.Tensor:
    if not tensors:
        raise RuntimeError(
            "[column_stack] expected at least one tensor, got an empty list: column_stack expects a non-empty TensorList"
        )
    return fl.cat([t if t.dim() >= 2 else t.reshape(-1, 1) for t in tensors], 1)


# ---------------------------------------------------------------- products of vectors


@functools.cache
def _indexing_missing() -> None:
    warnings.warn("[meshgrid] expected indexing to be given, got none: 'ij' is taken", stacklevel=3)


@composite()
def meshgrid(tensors: list[fl.Tensor], *, indexing: str | None = None) -> tuple[fl.Tensor, ...]:
    if not tensors:
        raise RuntimeError("[meshgrid] expected at least one tensor, got none")
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(
            f"[meshgrid] expected indexing to be 'ij' or 'xy', got {indexing!r}: indexing must be one of \"xy\" or \"ij\""
        )
    for t in tensors:
        if t.dim() > 1:
            raise RuntimeError(
                f"[meshgrid] expected 0-d or 1-d tensors, got shape {tuple(t.shape)}: Expected 0D or 1D tensor"
            )
        if t.dtype != tensors[0].dtype or t.device != tensors[0].device:
            what = "dtype" if t.dtype != tensors[0].dtype else "device"
            raise RuntimeError(
                f"[meshgrid] expected tensors of one dtype and device, got {tensors[0].dtype} and {t.dtype}: torch.meshgrid "
                f"expects all tensors to have the same {what}"
            )
    if indexing is None:
        _indexing_missing()
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


@composite()
def cartesian_prod(tensors: list[fl.Tensor]) -> fl.Tensor:
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"[cartesian_prod] expected vectors, got shape {tuple(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return fl.stack([g.flatten() for g in fl.meshgrid(*tensors, indexing="ij")], 1)


@composite()
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


@composite()
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
    dtype = fl._C._promote_operands(tensors)
    rows, at = [], 0
    for b in blocks:
        rows.append(fl.constant_pad_nd(b.to(dtype), [at, width - at - b.shape[1]]))
        at += b.shape[1]
    return fl.cat(rows, 0)


# ---------------------------------------------------------------- what passes know of these operators

tag("core recomputable", "cat")
tag("variadic", "block_diag cartesian_prod meshgrid")
tag("joins", "cat column_stack concat concatenate dstack hstack row_stack stack vstack")
autocast("widest", "cat stack", on="cpu")
