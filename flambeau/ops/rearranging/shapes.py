"""Shape rules of joining, splitting, padding and reordering."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.ops.geometry import Geometry, Int, Ints, dimension, equal_sizes, of_self, require, same
from flambeau.ops.rules import shape
from flambeau.ops.symbolic.numbers import SymInt

shape("flip", "roll", "tril", "triu")(of_self)


@shape("_edge_pad_backward")
def edge_pad_backward(sizes: Ints) -> Ints:
    return tuple(sizes)


@shape("trace")
def trace(self: Geometry) -> Ints:
    return ()


@shape("constant_pad_nd", "_edge_pad")
def constant_pad(self: Geometry, pad: Ints) -> Ints:
    sizes = list(self.sizes)
    for i in range(len(pad) // 2):
        sizes[-1 - i] = sizes[-1 - i] + pad[2 * i] + pad[2 * i + 1]
        require(sizes[-1 - i] >= 0, f"[pad] expected sizes that are not negative, got {sizes[-1 - i]}")
    return tuple(sizes)


def _is_empty(size: Int, rank: int) -> bool:
    if type(size) is not SymInt:
        return bool(size == 0)
    return rank > 1 and bool(size == 0)  # among vectors it makes no difference


@shape("cat")
def cat(tensors: Sequence[Geometry], dim: int) -> Ints:
    # An empty vector joins with anything, as it always did.
    rank = max(len(t.sizes) for t in tensors)
    shapes = [t.sizes for t in tensors if len(t.sizes) != 1 or not _is_empty(t.sizes[0], rank)]
    if not shapes:
        return (0,)
    d = dimension(dim, len(shapes[0]))
    result = list(shapes[0])
    for other in shapes[1:]:
        for i, size in enumerate(other):
            result[i] = result[i] + size if i == d else equal_sizes(result[i], size, "cat")
    return tuple(result)


@shape("stack")
def stack(tensors: Sequence[Geometry], dim: int) -> Ints:
    first = list(tensors[0].sizes)
    for other in tensors[1:]:
        first = [equal_sizes(a, b, "stack") for a, b in zip(first, other.sizes)]
    d = dimension(dim, len(first) + 1)
    return (*first[:d], len(tensors), *first[d:])


@shape("repeat")
def repeat(self: Geometry, repeats: Ints) -> Ints:
    lead = len(repeats) - len(self.sizes)
    return tuple(n * (self.sizes[i - lead] if i >= lead else 1) for i, n in enumerate(repeats))


@shape("diag_embed")
def diag_embed(self: Geometry, offset: int, dim1: int, dim2: int) -> Ints:
    rank = len(self.sizes) + 1
    a, b = sorted((dimension(dim1, rank), dimension(dim2, rank)))
    size = self.sizes[-1] + abs(offset)
    rest = list(self.sizes[:-1])
    rest.insert(a, size)
    rest.insert(b, size)
    return tuple(rest)


@shape("triu_indices")
def triangle_indices(row: Int, col: Int, offset: int) -> Ints:
    if not same(row, col) or offset != 1:
        raise NotImplementedError  # a sum over rows
    require(row >= 1, f"[triu_indices] expected at least one row, got {row}")
    return 2, row * (row - 1) // 2
