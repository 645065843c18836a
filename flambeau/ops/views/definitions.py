"""Definitions of views in terms of other operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import flambeau as fl
from flambeau.ops.geometry import dimension, geometry_of, inferred, numel, view_strides
from flambeau.ops.rules import aten_parts, definition


@definition("reshape")
def reshape(self: Any, shape: Sequence[Any]) -> Any:
    sizes = inferred(shape, numel(self.shape))
    return self.view(sizes) if view_strides(geometry_of(self), sizes) is not None else self.clone(memory_format=fl.contiguous_format).view(sizes)  # fmt: skip


@definition("flatten")
def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    rank = self.dim()
    if rank == 0:
        return self.reshape(1)
    start, end = dimension(start_dim, rank), dimension(end_dim, rank)
    sizes = tuple(self.shape)
    return self if start == end else self.reshape((*sizes[:start], numel(sizes[start : end + 1]), *sizes[end + 1 :]))


definition("ravel")(lambda self: self.reshape(-1))
definition("reshape_as")(lambda self, other: self.reshape(tuple(other.shape)))
definition("view_as")(lambda self, other: self.view(tuple(other.shape)))
definition("expand_as")(lambda self, other: self.expand(tuple(other.shape)))
definition("broadcast_to")(lambda self, size: self.expand(tuple(size)))


@definition("unflatten")
def unflatten(self: Any, dim: int, sizes: Sequence[Any]) -> Any:
    at = dimension(dim, self.dim())
    shape = tuple(self.shape)
    return self.view((*shape[:at], *inferred(sizes, shape[at]), *shape[at + 1 :]))


@definition("t")
def t(self: Any) -> Any:
    return self.transpose(0, 1) if self.dim() == 2 else fl._ops.alias(self)


@definition("_numpy_T")
def reversed_dims(self: Any) -> Any:
    return self.permute(tuple(reversed(range(self.dim()))))


definition("swapaxes", "swapdims")(lambda self, a, b: self.transpose(a, b))
definition("_mT")(lambda self: self.transpose(-2, -1))
definition("adjoint", "_mH")(lambda self: self.transpose(-2, -1).conj())
definition("_H")(lambda self: (self.transpose(0, 1) if self.dim() == 2 else self).conj())


@definition("movedim.int", "moveaxis.int", "movedim.intlist", "moveaxis.intlist")
def movedim(self: Any, source: Any, destination: Any) -> Any:
    rank = self.dim()
    sources, places = ([dimension(d, rank) for d in (x if isinstance(x, (list, tuple)) else [x])] for x in (source, destination))  # fmt: skip
    left = iter([d for d in range(rank) if d not in sources])
    placed = dict(zip(places, sources))
    return self.permute([placed[d] if d in placed else next(left) for d in range(rank)])


@definition("narrow")
def narrow(self: Any, dim: int, start: Any, length: Any) -> Any:
    return fl._ops.slice(self, dim, start, start + length, 1)


@definition("chunk", "unsafe_chunk")
def chunk(self: Any, chunks: int, dim: int = 0) -> Any:
    size = self.size(dim)
    return self.split((size + chunks - 1) // chunks, dim)


definition("unsafe_split.Tensor")(lambda self, split_size, dim: self.split(split_size, dim))
definition("unsafe_split_with_sizes")(lambda self, split_sizes, dim: self.split(list(split_sizes), dim))


@definition("tensor_split.sections")
def equal_parts(self: Any, sections: int, dim: int = 0) -> list[Any]:
    size = int(self.size(dim))
    ends = [i * (size // sections) + min(i, size % sections) for i in range(sections + 1)]
    return [fl._ops.slice(self, dim, a, b, 1) for a, b in pairwise(ends)]


@definition("tensor_split.indices")
def parts_at(self: Any, indices: Sequence[Any], dim: int = 0) -> list[Any]:
    ends = [0, *indices, self.size(dim)]
    return [fl._ops.slice(self, dim, a, b, 1) for a, b in pairwise(ends)]


def _split_along(dim: Callable[[Any], int]) -> Callable[..., Any]:
    return lambda self, indices_or_sections: self.tensor_split(indices_or_sections, dim(self))


definition("hsplit.int", "hsplit.array")(_split_along(lambda x: 0 if x.dim() == 1 else 1))
definition("vsplit.int", "vsplit.array")(_split_along(lambda x: 0))
definition("dsplit.int", "dsplit.array")(_split_along(lambda x: 2))


@definition("conj")
def conj(self: Any) -> Any:
    return self.conj_physical() if self.is_complex() else self


definition("resolve_conj", "resolve_neg")(lambda self: self)
definition("_conj")(lambda self: self.conj_physical())
definition("_neg_view")(lambda self: self.neg())


@definition("real")
def real(self: Any) -> Any:
    return fl.view_as_real(self).select(-1, 0) if self.is_complex() else self


@definition("imag")
def imag(self: Any) -> Any:
    return fl.view_as_real(self).select(-1, 1)


# ---------------------------------------------------------------- as ATen has them


@aten_parts("transpose")
def transpose_as_aten(self: Any, dim0: int, dim1: int) -> Any:
    return (fl.ops.aten.t.default, (self,)) if self.dim() == 2 and (dim0, dim1) == (0, 1) else NotImplemented
