"""Sharding rules of operators that move elements."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, R, Shard, along

sharding("flip", "roll")(along(lambda call: call.arguments["dims"] or range(call.tensors[0].dim()), moves=True))


@sharding("constant_pad_nd")
def padded(call: Call) -> Decision | None:
    """Divided along dimensions that are not padded; parts of a sum are padded with zeros, others with the value."""
    placement, pad = call.placements[0], call.arguments["pad"]
    if isinstance(placement, Shard):
        last = 2 * (call.tensors[0].dim() - 1 - placement.dim)
        return None if any(pad[last : last + 2]) else call.first(placement)
    summed = isinstance(placement, Partial) and placement.reduce_op in ("sum", "product")
    return (
        None if summed and (call.arguments["value"] != 0 or placement.reduce_op == "product") else call.first(placement)
    )


def _join(call: Call, dim: int, added: int) -> Decision:
    """Tensors side by side along a dimension of the result, which may be an `added` one."""
    if call.shard() is None:
        parts = {p for p in call.placements if isinstance(p, Partial)}
        return call.all(parts.pop() if len(parts) == 1 else R)
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
