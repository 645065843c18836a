"""Sharding rules of indexing."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.rules import sharding
from flambeau.ops.sharding import SUMS, Call, Decision, Partial, R, Shard, along, reduction

sharding("sort", "sort.stable", "topk", "argsort", "argsort.stable")(
    along(lambda call: [call.arguments.get("dim", -1)])
)

sharding("kthvalue", "mode", "median.dim", "nanmedian.dim")(reduction)


def _alike(call: Call, dim: int) -> bool:
    """Whether the tensors have the same size along a dimension other than the indexed one, so that their parts lie together."""
    indexed = call.arguments["dim"] % max(call.tensors[0].dim(), 1)
    return dim != indexed and len({tensor.shape[dim] if tensor.dim() > dim else -1 for tensor in call.tensors}) == 1


@sharding("gather")
def gather(call: Call) -> Decision | None:
    """Divided as the index; elements may come from anywhere unless both are divided along another dimension."""
    source, index = call.placements
    if isinstance(index, Shard):
        anywhere = index.dim == call.arguments["dim"] % call.tensors[0].dim()
        return ([R, index], [index]) if anywhere else call.all(index) if _alike(call, index.dim) else None
    if isinstance(source, Shard):
        return call.all(source) if _alike(call, source.dim) else None
    return call.first(source) if isinstance(source, Partial) and index.is_replicate() else call.all(R)


@sharding("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def scatter(call: Call) -> Decision | None:
    dims = [p.dim for p in call.placements if isinstance(p, Shard) and _alike(call, p.dim)]
    return call.all(Shard(dims[0])) if dims and not (call.in_place and call.placements[0] != Shard(dims[0])) else None


@sharding("index_select")
def index_select(call: Call) -> Decision | None:
    source, index = call.placements
    whole = not isinstance(source, Shard) or source.dim not in call.dims
    if index.is_replicate() and whole:
        return call.first(source)
    if isinstance(source, Shard) and whole:
        return call.first(source)
    return ([R, index], [Shard(call.dims[0])]) if isinstance(index, Shard) else None


@sharding("index.Tensor")
def index(call: Call) -> Decision | None:
    """Divided as the source along a dimension without index, or as the indices."""
    source, *others = call.placements
    indices = call.arguments["indices"]
    named = [place for place, one in enumerate(indices) if one is not None]
    if any(one.dtype in (fl.bool, fl.uint8) for one in indices if one is not None):
        return None
    rank = max(one.dim() for one in indices if one is not None)
    together = named == list(range(named[0], named[-1] + 1))
    first = named[0] if together else 0
    if isinstance(source, Shard) and source.dim not in named:
        before = sum(d < source.dim for d in named)
        moved = source.dim - before + (rank if source.dim > first or not together else 0)
        return call.first(source, Shard(moved))
    divided = [p for p in others if isinstance(p, Shard)]
    if divided and len(others) == 1 and not isinstance(source, Partial):
        return [R, divided[0]], [Shard(divided[0].dim + first)]
    summed = isinstance(source, Partial) and source.reduce_op in SUMS
    return call.first(source) if summed and all(p.is_replicate() for p in others) else None
