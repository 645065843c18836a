"""Sharding rules of copies and of tensors like another."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, fresh, linear, pointwise, unchanged

sharding("clone", "contiguous", "zero_")(unchanged)
sharding("_to_copy", "to.dtype", "to.device")(linear)
sharding("zeros_like", "ones_like", "empty_like", "full_like", "fill_")(fresh)


@sharding("copy_")
def copy_(call: Call) -> Decision | None:
    """Into a tensor that stays as it lies."""
    return linear(call) if isinstance(call.placements[0], Partial) else pointwise(call)
