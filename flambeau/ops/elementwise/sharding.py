"""Sharding rules of elementwise operators that commute with a sum of parts; the others share one rule."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, linear, scaling, unchanged

sharding("add.Tensor", "sub.Tensor", "neg")(linear)
sharding("positive")(unchanged)
sharding("div.Tensor")(scaling)


@sharding("mul.Tensor")
def mul(call: Call) -> Decision | None:
    """Either operand may be the factor."""
    if len(call.tensors) == 2 and isinstance(call.placements[1], Partial) and not call.in_place:
        turned = scaling(Call(call.arguments, call.tensors[::-1], call.placements[::-1], call.outputs, call.parts))
        return None if turned is None else (turned[0][::-1], turned[1])
    return scaling(call)
