"""Sharding rules of reductions whose parts combine; the others share one rule."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, Shard, along, reduction, reduction_by

sharding("sum")(reduction_by("sum"))
sharding("mean")(reduction_by("avg"))
sharding("amax", "max")(reduction_by("max"))
sharding("amin", "min")(reduction_by("min"))
sharding("prod")(reduction_by("product"))
sharding("max.dim", "min.dim", "var.dim", "std.dim", "argmax", "argmin")(reduction)
sharding("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")(along(lambda call: call.dims))


@sharding("_norm_p")
def norm(call: Call) -> Decision | None:
    """Norms of vectors: those of the parts make that of the whole."""
    placement, power = call.placements[0], call.arguments["p"]
    if isinstance(placement, Shard) and placement.dim in call.dims and isinstance(power, (int, float)) and power > 0:
        return call.first(placement, Partial(f"norm{float(power)}"))
    return reduction(call)
