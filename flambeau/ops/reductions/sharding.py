"""Sharding rules of reductions whose parts combine; the others share one rule."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, Rule, Shard, along, reduction, reduction_by


def of_parts(op: str) -> Rule:
    """A reduction of numbers to counts or truths, of which those of parts are reduced by `op`. One truth is the largest of all, all are the
    smallest: sums of truths would go on as counts."""
    whole = reduction_by(op)
    return lambda call: None if isinstance(call.placements[0], Partial) else whole(call)


sharding("any")(of_parts("max"))
sharding("all")(of_parts("min"))
sharding("count_nonzero")(of_parts("sum"))
sharding("sum")(reduction_by("sum"))
sharding("mean")(reduction_by("avg"))
sharding("amax", "max")(reduction_by("max"))
sharding("amin", "min")(reduction_by("min"))
sharding("prod")(reduction_by("product"))
sharding(
    "max.dim", "min.dim", "var.dim", "std.dim", "var_mean.dim", "std_mean.dim", "argmax", "argmin", "_logsumexp", "nansum",
    "nanmean",
)(reduction)  # fmt: skip
sharding("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")(along(lambda call: call.dims))


@sharding("_norm_p")
def norm(call: Call) -> Decision | None:
    """Norms of vectors: those of the parts make that of the whole."""
    placement, power = call.placements[0], call.arguments["p"]
    if isinstance(placement, Shard) and placement.dim in call.dims and isinstance(power, (int, float)) and power > 0:
        return call.first(placement, Partial(f"norm{float(power)}"))
    return reduction(call)
