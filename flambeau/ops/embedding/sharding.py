"""Sharding rules of embeddings: by columns of the table or by indices."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import Call, Decision, R, Shard


@sharding("embedding")
def embedding(call: Call) -> Decision | None:
    table, indices = call.placements
    if table == Shard(1):
        return [table, R], [Shard(call.outputs[0].dim() - 1)]
    if isinstance(indices, Shard):
        return [R, indices], [indices]
    return call.all(R)
