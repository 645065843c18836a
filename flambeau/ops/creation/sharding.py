"""Sharding rules of copies and of tensors like another."""

from __future__ import annotations

import flambeau as fl
from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, fresh, like_shape, linear, pointwise, unchanged

sharding("clone", "contiguous", "zero_", "empty_like")(unchanged)
sharding("zeros_like", "ones_like", "full_like", "fill_")(fresh)
sharding("new_zeros", "new_ones", "new_full")(like_shape)


@sharding("new_empty", "new_empty_strided")
def new_empty(call: Call) -> Decision | None:
    alike = tuple(call.outputs[0].shape) == tuple(call.tensors[0].shape)
    return unchanged(call) if alike else like_shape(call)


@sharding("_to_copy", "to.dtype", "to.device")
def converted(call: Call) -> Decision | None:
    """Rounding to integers commutes with maxima, not with sums."""
    placement, target = call.placements[0], call.outputs[0].dtype
    if (
        isinstance(placement, Partial)
        and placement.reduce_op in ("max", "min")
        and target != fl.bool
        and not target.is_complex
    ):
        return call.first(placement)
    exact = target.is_floating_point or target.is_complex or not call.tensors[0].dtype.is_floating_point
    return linear(call) if exact and target != fl.bool else pointwise(call)


@sharding("copy_")
def copy_(call: Call) -> Decision | None:
    """Into a tensor that stays as it lies."""
    return linear(call) if isinstance(call.placements[0], Partial) else pointwise(call)
