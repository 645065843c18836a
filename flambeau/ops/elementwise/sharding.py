"""Sharding rules of elementwise operators that commute with a sum of parts; the others share one rule."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import (
    Call,
    Decision,
    Partial,
    Rule,
    decreasing,
    increasing,
    linear,
    pointwise,
    scaling,
    unchanged,
)

sharding("add.Tensor", "sub.Tensor")(linear)
sharding("erfc")(decreasing)
sharding(
    "asinh", "atan", "ceil", "deg2rad", "erf", "exp", "exp2", "expm1", "floor", "rad2deg", "relu", "round", "sgn", "sigmoid",
    "sign", "sinh", "tanh", "trunc",
)(increasing)  # fmt: skip
sharding("positive")(unchanged)
sharding("div.Tensor")(scaling)


@sharding("neg")
def neg(call: Call) -> Decision | None:
    return (
        scaling(call)
        if call.placements[0].is_partial("sum") or call.placements[0].is_partial("avg")
        else decreasing(call)
    )


@sharding("mul.Tensor")
def mul(call: Call) -> Decision | None:
    """Either operand may be the factor."""
    second = len(call.tensors) == 2 and isinstance(call.placements[1], Partial)
    if second and not call.in_place and not isinstance(call.placements[0], Partial):
        turned = scaling(Call(call.arguments, call.tensors[::-1], call.placements[::-1], call.outputs, call.parts))
        return None if turned is None else (turned[0][::-1], turned[1])
    return scaling(call)


def extreme(op: str) -> Rule:
    """The larger or smaller of two numbers: a whole operand beside maxima of parts stays as it is."""

    def rule(call: Call) -> Decision | None:
        parts = Partial(op)
        known = all(p.is_replicate() or p == parts for p in call.placements)
        stays = not call.in_place or call.placements[0] == parts
        return call.all(parts) if known and parts in call.placements and stays else pointwise(call)

    return rule


for _op, _names in (("max", ("maximum", "fmax")), ("min", ("minimum", "fmin"))):
    sharding(*_names)(extreme(_op))
