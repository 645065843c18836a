"""Sharding rules of attention: batches and heads are independent."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, R, Shard


@sharding("_flash_attention", "_flash_attention_backward", "scaled_dot_product_attention")
def attention(call: Call) -> Decision | None:
    shard = call.shard()
    if shard is None or shard.dim > 1 or call.tensors[0].dim() != 4:
        return call.all(R)
    size = call.tensors[0].shape[shard.dim]
    alike = [tensor.dim() > shard.dim and tensor.shape[shard.dim] == size for tensor in call.tensors]
    return [Shard(shard.dim) if divided else R for divided in alike], [shard] * len(call.outputs)
