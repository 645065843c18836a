"""Sharding rules of indexing."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Shard, along

sharding("sort", "sort.stable", "topk", "argsort", "argsort.stable")(
    along(lambda call: [call.arguments.get("dim", -1)])
)

sharding("gather")(along(lambda call: range(call.tensors[0].dim()) if _uneven(call) else [call.arguments["dim"]]))


def _uneven(call: Call) -> bool:
    """Whether index and source differ in size along another dimension, so that their parts do not lie together."""
    source, index = call.tensors
    dim = call.arguments["dim"] % max(source.dim(), 1)
    return any(index.shape[d] != source.shape[d] for d in range(source.dim()) if d != dim)


@sharding("index_select")
def index_select(call: Call) -> Decision | None:
    placement = call.placements[0]
    if isinstance(placement, Shard) and placement.dim not in call.dims and call.placements[1].is_replicate():
        return call.first(placement)
    return None
