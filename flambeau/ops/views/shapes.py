"""Shape rules of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.ops.geometry import (
    Geometry,
    Int,
    Ints,
    broadcast,
    contiguous_strides,
    dimension,
    equal_sizes,
    inferred,
    known,
    numel,
    of_self,
    require,
    same,
    view_strides,
)
from flambeau.ops.rules import shape
from flambeau.ops.symbolic.numbers import SymInt, hint_of, sym_max, sym_min

shape("conj", "resolve_conj", "resolve_neg", "_conj", "_neg_view")(of_self)


@shape("_select_backward", "_slice_backward", "_diagonal_backward")
def inputs_sized(input_sizes: Ints) -> Ints:
    return tuple(input_sizes)


@shape("alias", "detach")
def alias(self: Geometry) -> Geometry:
    return self


@shape("view")
def view(self: Geometry, size: Ints) -> Geometry:
    sizes = inferred(size, numel(self.sizes))
    strides = view_strides(self, sizes, needed=True)
    if strides is None:
        raise RuntimeError(f"[view] expected sizes that fit the strides {self.strides}, got {tuple(size)}; use reshape")
    return Geometry(sizes, strides, self.offset)


@shape("reshape")
def reshape(self: Geometry, shape: Ints, size: Ints | None = None) -> Any:
    sizes = inferred(shape if shape is not None else size or (), numel(self.sizes))
    strides = view_strides(self, sizes)
    return sizes if strides is None else Geometry(sizes, strides, self.offset)


@shape("view_as", "reshape_as")
def view_as(self: Geometry, other: Geometry) -> Any:
    return reshape(self, other.sizes)


@shape("ravel")
def ravel(self: Geometry) -> Any:
    return reshape(self, (-1,))


@shape("flatten")
def flatten(self: Geometry, start_dim: int, end_dim: int) -> Any:
    rank = len(self.sizes)
    first, last = dimension(start_dim, rank), dimension(end_dim, rank)
    if not rank:
        return reshape(self, (1,))
    middle = numel(self.sizes[first : last + 1])
    sizes = (*self.sizes[:first], middle, *self.sizes[last + 1 :])
    strides = view_strides(self, sizes)
    return sizes if strides is None else Geometry(sizes, strides, self.offset)


@shape("unflatten")
def unflatten(self: Geometry, dim: int, sizes: Ints) -> Any:
    d = dimension(dim, len(self.sizes))
    inner = inferred(sizes, self.sizes[d])
    steps = [step * self.strides[d] for step in contiguous_strides(inner)]
    return Geometry(
        (*self.sizes[:d], *inner, *self.sizes[d + 1 :]),
        (*self.strides[:d], *steps, *self.strides[d + 1 :]),
        self.offset,
    )


def _permuted(self: Geometry, order: Sequence[int]) -> Geometry:
    return Geometry(tuple(self.sizes[d] for d in order), tuple(self.strides[d] for d in order), self.offset)


@shape("permute")
def permute(self: Geometry, dims: Sequence[int]) -> Geometry:
    return _permuted(self, [dimension(d, len(self.sizes)) for d in dims])


@shape("transpose", "swapaxes", "swapdims", "transpose_")
def transpose(self: Geometry, dim0: int, dim1: int, axis0: int | None = None, axis1: int | None = None) -> Geometry:
    rank = len(self.sizes)
    a, b = dimension(dim0 if dim0 is not None else axis0 or 0, rank), dimension(dim1 if dim1 is not None else axis1 or 0, rank)  # fmt: skip
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return _permuted(self, order)


@shape("t", "_numpy_T")
def reversed_dims(self: Geometry) -> Geometry:
    return _permuted(self, range(len(self.sizes))[::-1])


@shape("_mT")
def matrix_transpose(self: Geometry) -> Geometry:
    return transpose(self, -2, -1)


@shape("movedim.intlist", "moveaxis.intlist", "movedim.int", "moveaxis.int")
def movedim(self: Geometry, source: Any, destination: Any) -> Geometry:
    rank = len(self.sizes)
    sources = [dimension(d, rank) for d in (source if isinstance(source, (list, tuple)) else [source])]
    places = [dimension(d, rank) for d in (destination if isinstance(destination, (list, tuple)) else [destination])]
    rest = iter([d for d in range(rank) if d not in sources])
    taken = dict(zip(places, sources))
    return _permuted(self, [taken[i] if i in taken else next(rest) for i in range(rank)])


@shape("expand", "broadcast_to")
def expand(self: Geometry, size: Ints) -> Geometry:
    lead = len(size) - len(self.sizes)
    sizes: list[Int] = []
    strides: list[Int] = []
    for i, wanted in enumerate(size):
        own, step = (self.sizes[i - lead], self.strides[i - lead]) if i >= lead else (1, 0)
        if (type(wanted) is not SymInt and wanted == -1) or same(own, wanted):
            sizes.append(own)
            strides.append(step)
        elif hint_of(own) != 1 and (hint_of(own) == hint_of(wanted) or _unknown(own) or _unknown(wanted)):
            sizes.append(equal_sizes(own, wanted, "expand"))
            strides.append(step)
        else:
            require(own == 1, f"[expand] expected a size of 1 to expand to {wanted}, got {own}")
            sizes.append(wanted)
            strides.append(0)
    return Geometry(tuple(sizes), tuple(strides), self.offset)


@shape("expand_as")
def expand_as(self: Geometry, other: Geometry) -> Geometry:
    return expand(self, other.sizes)


@shape("unsqueeze")
def unsqueeze(self: Geometry, dim: int) -> Geometry:
    rank = len(self.sizes)
    d = dimension(dim, rank + 1)
    step = self.strides[d] * self.sizes[d] if d < rank else 1
    return Geometry((*self.sizes[:d], 1, *self.sizes[d:]), (*self.strides[:d], step, *self.strides[d:]), self.offset)


def _squeezed(self: Geometry, dims: Sequence[int]) -> Geometry:
    # Whether a dimension goes is decided by its size: a guard when it is symbolic.
    remaining = [d for d in range(len(self.sizes)) if d not in dims or bool(self.sizes[d] != 1)]
    return _permuted(self, remaining)


@shape("squeeze")
def squeeze(self: Geometry) -> Geometry:
    return _squeezed(self, range(len(self.sizes)))


@shape("squeeze.dim", "squeeze.dims")
def squeeze_dims(self: Geometry, dim: Any) -> Geometry:
    dims = dim if isinstance(dim, (list, tuple)) else [dim]
    return _squeezed(self, [dimension(d, len(self.sizes)) for d in dims])


@shape("select")
def select(self: Geometry, dim: int, index: Int) -> Geometry:
    d = dimension(dim, len(self.sizes))
    size = self.sizes[d]
    require(
        -size <= index,
        f"[select] expected an index in [-{size}, {size}), got {index}: select(): index {index} out of range",
    )
    require(
        index < size,
        f"[select] expected an index in [-{size}, {size}), got {index}: select(): index {index} out of range",
    )
    negative = known(index < 0)
    if negative is None:
        index = index.env.create_unbacked()  # which of the two it is, nobody knows
    elif negative:
        index = index + size
    rest = [i for i in range(len(self.sizes)) if i != d]
    permuted = _permuted(self, rest)
    return permuted._replace(offset=self.offset + index * self.strides[d])


def _unknown(size: Int) -> bool:
    """Whether a size depends on data."""
    return type(size) is SymInt and size.hint is None


def _clamped(value: Int, size: Int) -> Int:
    """A bound of a slice inside a dimension. The questions are guards; the size itself needs none. Where an answer depends on
    data, the bound is a new number."""
    if same(value, size):
        return size
    if _unknown(value) or _unknown(size):
        negative, inside = known(value < 0), known(value <= size)
        if negative is False and inside is not None:
            return value if inside else size
        env = value.env if type(value) is SymInt else size.env
        return env.create_unbacked()
    if value < 0:
        value = value + size
        if value < 0:
            return 0
    return value if value <= size else size


@shape("slice")
def slice_(self: Geometry, dim: int, start: Int | None, end: Int | None, step: Int) -> Geometry:
    d = dimension(dim, len(self.sizes))
    size = self.sizes[d]
    first = 0 if start is None else _clamped(start, size)
    # "To the end" is written as the largest integer.
    last = size if end is None or (type(end) is not SymInt and end >= 2**62) else _clamped(end, size)
    length = last - first
    if _unknown(length) and not known(length >= 0):
        length = length.env.create_unbacked()
    elif type(length) is SymInt and not length >= 0:
        length = 0
    elif type(length) is not SymInt:
        length = max(length, 0)
    count = length if step == 1 else (length + step - 1) // step
    return Geometry(
        (*self.sizes[:d], count, *self.sizes[d + 1 :]),
        (*self.strides[:d], self.strides[d] * step, *self.strides[d + 1 :]),
        self.offset + first * self.strides[d],
    )


@shape("narrow")
def narrow(self: Geometry, dim: int, start: Int, length: Int) -> Geometry:
    d = dimension(dim, len(self.sizes))
    negative = known(start < 0)
    if negative is None:
        require(start >= -self.sizes[d], f"[narrow] expected a start of at least -{self.sizes[d]}, got {start}")
        require(length <= self.sizes[d], f"[narrow] expected a window inside {self.sizes[d]}, got {length}")
        start = start.env.create_unbacked()
        return Geometry(
            (*self.sizes[:d], length, *self.sizes[d + 1 :]), self.strides, self.offset + start * self.strides[d]
        )
    if negative:
        start = start + self.sizes[d]
    require(
        start + length <= self.sizes[d], f"[narrow] expected a window inside {self.sizes[d]}, got {start} + {length}"
    )
    return Geometry(
        (*self.sizes[:d], length, *self.sizes[d + 1 :]), self.strides, self.offset + start * self.strides[d]
    )


def _pieces(self: Geometry, d: int, lengths: Sequence[Int]) -> list[Geometry]:
    pieces, at = [], 0
    for length in lengths:
        pieces.append(Geometry((*self.sizes[:d], length, *self.sizes[d + 1 :]), self.strides, self.offset + at * self.strides[d]))  # fmt: skip
        at = at + length
    return pieces


@shape("split.Tensor", "unsafe_split.Tensor", "split_copy.Tensor")
def split(self: Geometry, split_size: Int, dim: int) -> list[Geometry]:
    d = dimension(dim, len(self.sizes))
    size = self.sizes[d]
    # How many tensors there are must be known: a guard on the quotient, not on the size.
    if same(size, split_size):
        return _pieces(self, d, [size])
    count = sym_max((size + split_size - 1) // split_size, 1) if hint_of(split_size) else 1
    turns = int(count)
    lengths: list[Int] = [split_size] * (turns - 1)
    return _pieces(self, d, [*lengths, size - split_size * (turns - 1)])


@shape("split.sizes", "split_with_sizes", "unsafe_split_with_sizes")
def split_sizes(self: Geometry, split_size: Ints | None, split_sizes: Ints | None, dim: int) -> list[Geometry]:
    d = dimension(dim, len(self.sizes))
    lengths = split_size if split_size is not None else split_sizes or ()
    for length in lengths:
        require(length >= 0, f"[split] expected sizes that are not negative, got {length}")
    require(
        sum(lengths) == self.sizes[d], f"[split] expected sizes that add up to {self.sizes[d]}, got {tuple(lengths)}"
    )
    return _pieces(self, d, lengths)


@shape("chunk", "unsafe_chunk")
def chunk(self: Geometry, chunks: int, dim: int) -> list[Geometry]:
    d = dimension(dim, len(self.sizes))
    size = self.sizes[d]
    each = (size + chunks - 1) // chunks
    if type(size) is SymInt and size % chunks == 0:
        return _pieces(self, d, [size // chunks] * chunks) if size > 0 else _pieces(self, d, [0] * chunks)
    return split(self, each, dim)


@shape("tensor_split.sections")
def tensor_split(self: Geometry, sections: int, dim: int) -> list[Geometry]:
    d = dimension(dim, len(self.sizes))
    size = self.sizes[d]
    longer = size % sections
    lengths = [size // sections + (1 if i < int(longer) else 0) for i in range(sections)]
    return _pieces(self, d, lengths)


@shape("unbind.int")
def unbind(self: Geometry, dim: int) -> list[Geometry]:
    d = dimension(dim, len(self.sizes))
    return [select(self, d, i) for i in range(int(self.sizes[d]))]


@shape("diagonal")
def diagonal(self: Geometry, offset: int, dim1: int, dim2: int) -> Geometry:
    rank = len(self.sizes)
    a, b = dimension(dim1, rank), dimension(dim2, rank)
    rows, columns = self.sizes[a], self.sizes[b]
    length = sym_min(rows, columns - offset) if offset >= 0 else sym_min(rows + offset, columns)
    length = sym_max(length, 0)
    shift = offset * self.strides[b] if offset >= 0 else -offset * self.strides[a]
    rest = _permuted(self, [d for d in range(rank) if d not in (a, b)])
    return Geometry((*rest.sizes, length), (*rest.strides, self.strides[a] + self.strides[b]), self.offset + shift)


@shape("unfold")
def unfold(self: Geometry, dimension: int, size: Int, step: Int) -> Geometry:
    rank = len(self.sizes)
    if not rank:
        return Geometry((size,), (1,), self.offset)
    d = dimension % rank
    count = (self.sizes[d] - size) // step + 1
    require(size <= self.sizes[d], f"[unfold] expected windows of at most {self.sizes[d]}, got {size}")
    return Geometry(
        (*self.sizes[:d], count, *self.sizes[d + 1 :], size),
        (*self.strides[:d], self.strides[d] * step, *self.strides[d + 1 :], self.strides[d]),
        self.offset,
    )


@shape("as_strided")
def as_strided(self: Geometry, size: Ints, stride: Ints, storage_offset: Int | None) -> Geometry:
    return Geometry(tuple(size), tuple(stride), self.offset if storage_offset is None else storage_offset)


@shape("view_as_real")
def view_as_real(self: Geometry) -> Geometry:
    return Geometry((*self.sizes, 2), (*(s * 2 for s in self.strides), 1), self.offset * 2)


@shape("view_as_complex")
def view_as_complex(self: Geometry) -> Geometry:
    return Geometry(self.sizes[:-1], tuple(s // 2 for s in self.strides[:-1]), self.offset // 2)


@shape("broadcast_tensors")
def broadcast_tensors(tensors: Sequence[Geometry]) -> list[Geometry]:
    sizes = broadcast(*(t.sizes for t in tensors))
    return [expand(t, sizes) for t in tensors]
