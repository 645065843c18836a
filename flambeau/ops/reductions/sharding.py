"""Sharding rules of reductions whose parts combine; the others share one rule."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, R, Rule, Shard, along, reduction, reduction_by


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
    "max.dim", "min.dim", "var.dim", "std.dim", "var_mean.dim", "std_mean.dim", "argmax", "argmin", "_logsumexp", "nanmean",
)(reduction)  # fmt: skip
sharding("nansum")(of_parts("sum"))
sharding("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")(along(lambda call: call.dims))


@sharding("histc")
def histogram(call: Call) -> Decision | None:
    """Counts of the parts add up, where the range does not depend on the values."""
    placement, ends = call.placements[0], (call.arguments["min"], call.arguments["max"])
    known = all(isinstance(end, (int, float)) for end in ends) and ends[0] < ends[1]
    return call.first(placement, Partial()) if isinstance(placement, Shard) and known else None


@sharding("_search")
def search(call: Call) -> Decision | None:
    """Places in one row of boundaries, of values that may lie anywhere."""
    placement = call.placements[1]
    if call.tensors[0].dim() != 1 or len(call.tensors) > 2 or not isinstance(placement, Shard):
        return None
    return [R, placement], [placement]


@sharding("_norm_p")
def norm(call: Call) -> Decision | None:
    """Norms of vectors: those of the parts make that of the whole."""
    placement, power = call.placements[0], call.arguments["p"]
    if isinstance(placement, Shard) and placement.dim in call.dims and isinstance(power, (int, float)) and power > 0:
        return call.first(placement, Partial(f"norm{float(power)}"))
    return reduction(call)
