"""Splitting and broadcasting: split, unbind, narrow, broadcast_tensors, and at least so many dimensions.

Pieces are views, made in csrc/ops/splitting.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau.ops.record import composite, native, tag, vjp

# ---------------------------------------------------------------- splitting

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


def _joined(
    g: list[fl.Tensor | None], sizes: fl.Size, lengths: Sequence[int], dim: int, dtype: fl.dtype, device: fl.device
) -> fl.Tensor:
    """The gradients of pieces along a dimension, with zeros for those that have none."""
    whole = list(sizes)
    parts = []
    for part, length in zip(g, lengths):
        whole[dim] = length
        parts.append(fl.zeros(whole, dtype=dtype, device=device) if part is None else part)
    return fl.cat(parts, dim)


@vjp("split.Tensor")
def split_vjp(
    g: list[fl.Tensor | None],
    self_sizes: fl.Size,
    self_dtype: fl.dtype,
    self_device: fl.device,
    split_size: int,
    dim: int,
) -> fl.Tensor:
    n = self_sizes[dim]
    lengths = [min(split_size, n - i * split_size) for i in range(len(g))]
    return _joined(g, self_sizes, lengths, dim, self_dtype, self_device)


@vjp("split.sizes")
def split_sizes_vjp(
    g: list[fl.Tensor | None],
    self_sizes: fl.Size,
    self_dtype: fl.dtype,
    self_device: fl.device,
    split_size: list[int],
    dim: int,
) -> fl.Tensor:
    return _joined(g, self_sizes, split_size, dim, self_dtype, self_device)


@vjp("split_with_sizes")
def split_with_sizes_vjp(
    g: list[fl.Tensor | None],
    self_sizes: fl.Size,
    self_dtype: fl.dtype,
    self_device: fl.device,
    split_sizes: fl.Size,
    dim: int,
) -> fl.Tensor:
    return _joined(g, self_sizes, split_sizes, dim, self_dtype, self_device)


@vjp("unbind.int")
def unbind_vjp(
    g: list[fl.Tensor | None], self_sizes: fl.Size, self_dtype: fl.dtype, self_device: fl.device, dim: int
) -> fl.Tensor:
    if not g:
        return fl.zeros(self_sizes, dtype=self_dtype, device=self_device)
    dim = dim % len(self_sizes)
    shape = [n for d, n in enumerate(self_sizes) if d != dim]
    return fl.stack([fl.zeros(shape, dtype=self_dtype, device=self_device) if x is None else x for x in g], dim)


@composite("split.function", method=False)
def split(tensor: fl.Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[fl.Tensor, ...]:
    return tuple(tensor.split(split_size_or_sections, dim))


# The indices under the name that PyTorch gives them in the functions of NumPy's style.
@composite("tensor_split.indices_or_sections")
def tensor_split(self: fl.Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[fl.Tensor, ...]:
    if isinstance(indices_or_sections, fl.Tensor):
        return tuple(fl.tensor_split(self, tensor_indices_or_sections=indices_or_sections, dim=dim))
    if isinstance(indices_or_sections, int):
        return tuple(fl.tensor_split(self, sections=indices_or_sections, dim=dim))
    if isinstance(indices_or_sections, (tuple, list)):
        return tuple(fl.tensor_split(self, indices=indices_or_sections, dim=dim))
    raise TypeError(f"[tensor_split] expected an int, ints or a Tensor, got {type(indices_or_sections).__name__}")


# ---------------------------------------------------------------- broadcasting

native("broadcast_to(Tensor self, int[] size) -> Tensor")


@composite()
def broadcast_tensors(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    shape = fl.broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t if t.shape == shape else t.expand(shape) for t in tensors)


@composite(method=False)
def atleast_1d(self: fl.Tensor) -> fl.Tensor:
    return self if self.dim() else self.reshape(1)


@composite(method=False)
def atleast_2d(self: fl.Tensor) -> fl.Tensor:
    if self.dim() == 0:
        return self.reshape(1, 1)
    return self.unsqueeze(0) if self.dim() == 1 else self


@composite(method=False)
def atleast_3d(self: fl.Tensor) -> fl.Tensor:
    if self.dim() == 0:
        return self.reshape(1, 1, 1)
    if self.dim() == 1:
        return self.unsqueeze(0).unsqueeze(-1)
    return self.unsqueeze(-1) if self.dim() == 2 else self


@composite("atleast_1d.Sequence")
def atleast_1d_all(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    return tuple(atleast_1d(t) for t in tensors)


@composite("atleast_2d.Sequence")
def atleast_2d_all(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    return tuple(atleast_2d(t) for t in tensors)


@composite("atleast_3d.Sequence")
def atleast_3d_all(tensors: list[fl.Tensor]) -> tuple[fl.Tensor, ...]:
    return tuple(atleast_3d(t) for t in tensors)


# ---------------------------------------------------------------- what passes know of these operators

tag("core", "split_with_sizes")
tag("variadic", "atleast_1d atleast_2d atleast_3d broadcast_tensors")
tag("moves", "broadcast_to chunk narrow split tensor_split unbind")
tag("reads_values", "narrow.Tensor tensor_split.tensor_indices_or_sections")
