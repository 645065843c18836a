"""Sizes, strides and offsets of tensors as plain data, with ints and symbolic ints alike, and the arithmetic on them.

Strides are those of tensors with elements; where a size is 0 they may differ from what the kernels report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.ops.symbolic.numbers import SymBool, SymInt, hint_of

Int = Any  # int or SymInt
Ints = tuple[Int, ...]


class Geometry(NamedTuple):
    """Where the elements of a tensor lie in its storage."""

    sizes: Ints
    strides: Ints
    offset: Int = 0


def geometry_of(tensor: Any) -> Geometry:
    """Sizes, strides and offset of a tensor; those of a fake may be symbolic."""
    known = getattr(tensor, "geometry", None)
    return Geometry(tuple(tensor.shape), tensor.stride(), tensor.storage_offset()) if known is None else known


def dimension(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    dim = int(dim)
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(f"[shape] expected a dimension in [{-rank}, {rank - 1}], got {dim}: Dimension out of range")
    return dim + rank if dim < 0 else dim


def numel(sizes: Sequence[Int]) -> Int:
    count: Int = 1
    for size in sizes:
        count = count * size
    return count


def contiguous_strides(sizes: Sequence[Int]) -> Ints:
    strides: list[Int] = []
    step: Int = 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def same(a: Int, b: Int) -> bool:
    """Whether two sizes are the same expression; asks nothing that would have to be guarded."""
    if type(a) is SymInt:
        return type(b) is SymInt and (a.expr is b.expr or a.env.same(a.expr, b.expr))
    return type(b) is not SymInt and a == b


def same_all(a: Sequence[Int], b: Sequence[Int]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))


def is_contiguous(geometry: Geometry) -> bool:
    return same_all(geometry.strides, contiguous_strides(geometry.sizes))


def require(condition: Any, message: str) -> None:
    """Check a condition that the kernels check as well; for symbolic sizes it becomes a guard, and a check at run time where
    it depends on data."""
    if type(condition) is SymBool and condition.hint is None:
        holds = condition.env.assume(condition)
    else:
        holds = bool(condition)
    if not holds:
        raise RuntimeError(message)


def known(condition: Any) -> bool | None:
    """The truth of a condition; None where it depends on data and nothing is known of it."""
    if type(condition) is SymBool and condition.hint is None:
        return condition.env.statically_known(condition.condition)
    return bool(condition)


def equal_sizes(a: Int, b: Int, what: str) -> Int:
    """Two sizes that must agree: a guard for symbolic ones. The simpler of the two."""
    if same(a, b):
        return a
    require(a == b, f"[shape] expected equal sizes for {what}, got {a} and {b}")
    return a if type(b) is SymInt and not (type(a) is SymInt and a.hint is None) else b


def broadcast_size(a: Int, b: Int) -> Int:
    """The size of a dimension after broadcasting. Where a symbolic size meets another, what holds at the hints is
    guarded: that they are equal, or that one of them is 1."""
    if same(a, b):
        return a
    plain_a, plain_b = type(a) is not SymInt, type(b) is not SymInt
    if plain_b and b == 1:
        return a
    if plain_a and a == 1:
        return b
    at_a, at_b = hint_of(a), hint_of(b)
    depends_on_data = (not plain_a and a.hint is None) or (not plain_b and b.hint is None)
    if at_a == at_b or (depends_on_data and at_a != 1 and at_b != 1):
        return equal_sizes(a, b, "broadcasting")
    if at_b == 1 and b == 1:
        return a
    if at_a == 1 and a == 1:
        return b
    raise RuntimeError(f"[broadcast] expected equal sizes or 1, got {a} and {b}")


def broadcast(*shapes: Sequence[Int]) -> Ints:
    """The common shape of operands."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Int] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            result[i] = broadcast_size(result[i], size)
    return tuple(result)


def inferred(sizes: Sequence[Int], total: Int) -> Ints:
    """Sizes with a -1 replaced by what the number of elements leaves for it."""
    known: Int = 1
    place = -1
    for i, size in enumerate(sizes):
        if type(size) is not SymInt and size == -1:
            place = i
        else:
            known = known * size
    if place < 0:
        require(known == total, f"[view] expected sizes for {total} elements, got {tuple(sizes)}")
        return tuple(sizes)
    if type(known) is not SymInt and known == 0:
        return tuple(0 if i == place else s for i, s in enumerate(sizes))
    require(total % known == 0, f"[view] expected sizes that divide {total} elements, got {tuple(sizes)}")
    return tuple(total // known if i == place else s for i, s in enumerate(sizes))


Comparison = Callable[[Int, Int], bool]


def view_strides(geometry: Geometry, sizes: Ints, needed: bool = False) -> Ints | None:
    """Strides with which a view has other sizes, or None when the elements cannot be reached that way.

    Runs of contiguous dimensions are divided into the new sizes, from the innermost. What fits as expressions is tried
    first; only then are sizes compared by value, which guards. Where a view is `needed`, sizes may also turn
    out to be 1.
    """
    if is_contiguous(geometry):
        return contiguous_strides(sizes)
    attempts = [(same, same), (same, _equal_by_value), (_equal_by_value, _equal_by_value)]
    for joined, equal in attempts if needed else attempts[:2]:
        pieces = _pieces(geometry, joined)
        strides = _divided(pieces, sizes, equal, joined) if pieces else contiguous_strides(sizes)
        if strides is not None:
            return strides
    return None


def _pieces(geometry: Geometry, equal: Comparison) -> list[tuple[Int, Int]]:
    """Number of elements and step of the runs of dimensions that lie in one piece, innermost first."""
    pieces: list[tuple[Int, Int]] = []
    extent: Int = None
    for size, stride in zip(reversed(geometry.sizes), reversed(geometry.strides)):
        if equal(size, 1):
            continue
        if pieces and equal(stride, extent):
            pieces[-1] = (pieces[-1][0] * size, pieces[-1][1])
        else:
            pieces.append((size, stride))
        extent = stride * size
    return pieces


def _equal_by_value(a: Int, b: Int) -> bool:
    return same(a, b) or (hint_of(a) == hint_of(b) and bool(a == b))


def _divided(pieces: list[tuple[Int, Int]], sizes: Ints, equal: Comparison, joined: Comparison) -> Ints | None:
    strides: list[Int] = [1] * len(sizes)
    at = len(sizes) - 1
    for count, step in pieces:
        if at >= 0 and same(sizes[at], count):
            strides[at] = step
            at -= 1
            continue
        filled: Int = 1
        while at >= 0 and not equal(filled, count):
            strides[at] = step * filled
            filled = filled * sizes[at]
            at -= 1
        if not equal(filled, count):
            return None
    outer = pieces[-1][0] * pieces[-1][1]
    for d in range(at, -1, -1):
        if not joined(sizes[d], 1):
            return None
        strides[d] = outer
    return tuple(strides)


def dense_strides(sizes: Ints, strides: Sequence[int], hints: Sequence[int]) -> Ints | None:
    """Symbolic strides of a tensor that lies densely, in the order of the strides it has at the hints. None when it
    does not lie densely there."""
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d] if hints[d] != 1 else 0,))
    # The strides of dimensions of one element do not order them: they keep their position in the shape.
    if any(hints[d] == 1 for d in range(len(sizes))):
        order = _with_ones(strides, hints)
    symbolic: list[Int] = [1] * len(sizes)
    step: Int = 1
    at: int = 1
    for d in reversed(order):
        if hints[d] > 1 and strides[d] != at:
            return None
        symbolic[d] = step
        step = step * sizes[d]
        at *= max(hints[d], 1)
    return tuple(symbolic)


def _with_ones(strides: Sequence[int], hints: Sequence[int]) -> list[int]:
    order = sorted((d for d in range(len(hints)) if hints[d] != 1), key=lambda d: -strides[d])
    for d in range(len(hints)):
        if hints[d] == 1:
            after = [i for i, other in enumerate(order) if other > d]
            order.insert(after[0] if after else len(order), d)
    return order


# ---------------------------------------------------------------------------------------------- for shape rules

NOTHING: Ints = (0,)  # the sizes of a result that was not asked for


def fits(sizes: Ints, target: Ints, what: str) -> None:
    """Check that a shape broadcasts to another one."""
    require(len(sizes) <= len(target), f"[{what}] expected at most {len(target)} dimensions, got {len(sizes)}")
    for own, wanted in zip(reversed(sizes), reversed(target)):
        if type(own) is SymInt or own != 1:
            if hint_of(own) == 1 and hint_of(wanted) != 1:
                require(own == 1, f"[{what}] expected a size of 1, got {own}")
            else:
                equal_sizes(own, wanted, what)


def reduced(sizes: Ints, dim: Any, keepdim: bool) -> Ints:
    """The sizes after a reduction over some dimensions, or over all when dim is None or empty."""
    rank = len(sizes)
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        reduced_dims = set(range(rank))
    else:
        reduced_dims = {dimension(d, rank) for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    if keepdim:
        return tuple(1 if d in reduced_dims else s for d, s in enumerate(sizes))
    return tuple(s for d, s in enumerate(sizes) if d not in reduced_dims)


def check_bias(bias: Geometry | None, channels: Int) -> None:
    """Check that a bias has one element for each channel."""
    if bias is not None:
        equal_sizes(bias.sizes[0], channels, "bias")


def of_self(self: Geometry) -> Ints:
    """The rule of operators whose result has the sizes of the first argument."""
    return self.sizes


def of_self_twice(self: Geometry) -> list[Ints]:
    """The rule of operators with two results of the first argument's sizes."""
    return [self.sizes, self.sizes]


def of_size_argument(size: Ints) -> Ints:
    """The rule of operators with an argument for the sizes of the result."""
    return tuple(size)
