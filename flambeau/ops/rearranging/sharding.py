"""Sharding rules of operators that move elements."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Placement, R, Shard, along

sharding("flip", "roll")(along(lambda call: call.arguments["dims"] or range(call.tensors[0].dim())))


def _join(call: Call, dim: int, added: int) -> Decision:
    """Tensors side by side along a dimension of the result, which may be an `added` one."""
    shard = call.shard()
    if shard is None:
        same = all(placement == call.placements[0] for placement in call.placements)
        return call.all(call.placements[0] if same else R)
    result: Placement = Shard(shard.dim + (added and dim <= shard.dim))
    return call.all(R) if result == Shard(dim) else call.all(shard, result)


@sharding("cat")
def cat(call: Call) -> Decision | None:
    return _join(call, call.arguments["dim"] % call.outputs[0].dim(), 0)


@sharding("stack")
def stack(call: Call) -> Decision | None:
    return _join(call, call.arguments["dim"] % call.outputs[0].dim(), 1)
