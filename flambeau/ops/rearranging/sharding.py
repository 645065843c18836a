"""Sharding rules of operators that move elements."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, R, Shard, along

sharding("flip", "roll")(along(lambda call: call.arguments["dims"] or range(call.tensors[0].dim())))


def _join(call: Call, dim: int, added: int) -> Decision:
    """Tensors side by side along a dimension of the result, which may be an `added` one."""
    if call.shard() is None:
        same = all(placement == call.placements[0] for placement in call.placements)
        return call.all(call.placements[0] if same else R)
    for shard in call.placements:
        result = Shard(shard.dim + (added and dim <= shard.dim)) if isinstance(shard, Shard) else Shard(dim)
        if result != Shard(dim):
            return call.all(shard, result)
    return call.all(R)


@sharding("repeat")
def repeat(call: Call) -> Decision | None:
    """Divided as the argument, along a dimension that is not repeated."""
    placement, times = call.placements[0], call.arguments["repeats"]
    if not isinstance(placement, Shard):
        return call.first(placement)
    dim = placement.dim + len(times) - call.tensors[0].dim()
    return call.first(placement, Shard(dim)) if times[dim] == 1 else None


@sharding("cat")
def cat(call: Call) -> Decision | None:
    return _join(call, call.arguments["dim"] % call.outputs[0].dim(), 0)


@sharding("stack")
def stack(call: Call) -> Decision | None:
    return _join(call, call.arguments["dim"] % call.outputs[0].dim(), 1)
