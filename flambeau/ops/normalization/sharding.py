"""Sharding rules of softmax and layer norm: rows are independent."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, Partial, R, Shard, along

sharding(
    "_softmax", "_log_softmax", "softmax.int", "log_softmax.int", "_softmax_backward_data", "_log_softmax_backward_data"
)(along(lambda call: [call.arguments["dim"]]))


@sharding("native_layer_norm", "_fused_rms_norm")
def layer_norm(call: Call) -> Decision | None:
    placement = call.placements[0]
    rows = call.tensors[0].dim() - len(call.arguments["normalized_shape"])
    return call.first(placement) if isinstance(placement, Shard) and placement.dim < rows else call.all(R)


@sharding("_layer_norm_backward")
def layer_norm_backward(call: Call) -> Decision | None:
    """Gradients of weight and bias are sums over rows."""
    rows = call.tensors[0].dim() - call.arguments["ndim"]
    shard = next((p for p in call.placements[:2] if isinstance(p, Shard) and p.dim < rows), None)
    if shard is None:
        return call.all(R)
    with_rows = len(call.tensors) - (call.arguments["weight"] is not None)
    return (
        [*[shard] * with_rows, *[R] * (len(call.tensors) - with_rows)],
        [shard, *[Partial()] * (len(call.outputs) - 1)],
    )
