"""Sharding rules of views: where the divided dimension is in the result."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import SUMS, Call, Decision, Partial, Shard, _StridedShard, by_pieces, unchanged

sharding("alias", "detach")(unchanged)


def view(where: Callable[[Call, int], int | None]) -> Callable[[Call], Decision | None]:
    """A rule of a function that says where a dimension of the first tensor is in the results; None: not whole there."""

    @functools.wraps(where)
    def rule(call: Call) -> Decision | None:
        placement = call.placements[0]
        if not isinstance(placement, Shard):
            return call.first(placement)
        dim = where(call, placement.dim)
        return None if dim is None else call.first(placement, Shard(dim))

    return rule


@sharding("view_as_real", "view_as_complex")
def as_numbers(call: Call) -> Decision | None:
    """The dimension of real and imaginary parts is the last one of the real tensor. Complex numbers have sums, but no maxima."""
    placement = call.placements[0]
    if isinstance(placement, Partial):
        return call.first(placement) if placement.reduce_op in SUMS else None
    whole = min(call.tensors[0].dim(), call.outputs[0].dim())
    return call.first(placement) if not isinstance(placement, Shard) or placement.dim < whole else None


@sharding("unfold")
@view
def unfold(call: Call, dim: int) -> int | None:
    return dim if dim != call.arguments["dimension"] % call.tensors[0].dim() else None


@sharding("t")
@view
def t(call: Call, dim: int) -> int | None:
    return call.tensors[0].dim() - 1 - dim


@sharding("transpose")
@view
def transpose(call: Call, dim: int) -> int | None:
    rank = call.tensors[0].dim()
    first, second = call.arguments["dim0"] % rank, call.arguments["dim1"] % rank
    return {first: second, second: first}.get(dim, dim)


@sharding("permute")
@view
def permute(call: Call, dim: int) -> int | None:
    rank = call.tensors[0].dim()
    return [d % rank for d in call.arguments["dims"]].index(dim)


@sharding("unsqueeze")
@view
def unsqueeze(call: Call, dim: int) -> int | None:
    return dim + (call.arguments["dim"] % call.outputs[0].dim() <= dim)


@sharding("squeeze", "squeeze.dim", "squeeze.dims")
@view
def squeeze(call: Call, dim: int) -> int | None:
    shape = call.tensors[0].shape
    removed = [d for d in call.dims if shape[d] == 1]
    full = -(-shape[dim] // call.parts)
    single = full == 1 or shape[dim] % full == 1  # a part that would lose the dimension too
    return None if dim in call.dims and single else dim - sum(d < dim for d in removed)


@sharding("slice")
@view
def slice_(call: Call, dim: int) -> int | None:
    whole = tuple(call.outputs[0].shape) == tuple(call.tensors[0].shape)
    return dim if whole or dim not in call.dims else None


@sharding("split.Tensor", "split.sizes", "split_with_sizes")
@view
def split(call: Call, dim: int) -> int | None:
    return None if dim in call.dims else dim


@sharding("select", "unbind.int")
@view
def select(call: Call, dim: int) -> int | None:
    (removed,) = call.dims
    return None if dim == removed else dim - (removed < dim)


@sharding("expand")
@view
def expand(call: Call, dim: int) -> int | None:
    place = dim + call.outputs[0].dim() - call.tensors[0].dim()
    return place if call.outputs[0].shape[place] == call.tensors[0].shape[dim] else None


@sharding("view", "reshape")
def reshape(call: Call) -> Decision | None:
    """A division survives when its dimension is one of those it is joined with, or the first of those into which it is divided."""
    placement = call.placements[0]
    if not isinstance(placement, Shard):
        return call.first(placement)
    pieces = placement.split_factor if isinstance(placement, _StridedShard) else 1
    even_shapes = call.local_shapes()
    shape, result = even_shapes or (list(call.tensors[0].shape), list(call.outputs[0].shape))
    front, size = math.prod(shape[: placement.dim]) * pieces, shape[placement.dim] // pieces
    passed = 1
    for place, length in enumerate(result):
        if length != 1 and passed * length > front:
            inside, rest = front // passed, length * passed // max(front, 1)
            even = rest % call.parts == 0 and size % call.parts == 0
            fits = inside * passed == front and inside * rest == length and (rest == size or even)
            if not fits or (inside > 1 and even_shapes is None):
                return None
            return call.first(placement, _StridedShard(place, split_factor=inside) if inside > 1 else Shard(place))
        passed *= length
    return None


by_pieces.add(reshape)
