"""Sharding rules of matrix products: by rows, columns, batches, or the summed dimension, whose results are parts of a sum."""

from __future__ import annotations

from flambeau.ops.rules import sharding
from flambeau.ops.sharding import SUMS, Call, Decision, Partial, Placement, R, Shard, broadcast


def _factors(left: Placement, right: Placement, batch: int) -> tuple[Placement, Placement, Placement]:
    """What two factors need that lie so, and how their product lies."""
    row, column = Shard(batch), Shard(batch + 1)
    choices: list[tuple[Placement, Placement, Placement]] = [
        (column, row, Partial()),  # the summed dimension: the last of the first factor, the last but one of the second
        (row, R, row),
        (R, column, column),
    ]
    if batch:
        choices.insert(0, (Shard(0), Shard(0), Shard(0)))
    exact = [choice for choice in choices if choice[:2] == (left, right)]
    by_left = [choice for choice in choices if left == choice[0] != R]
    by_right = [choice for choice in choices if right == choice[1] != R]
    preferred = [choice for choice in by_left if choice[2] == row]
    return next(iter((*exact, *preferred, *by_right, *by_left)), (R, R, R))


@sharding("mm", "bmm")
def product(call: Call) -> Decision | None:
    left, right = call.placements
    if isinstance(left, Partial) and left.reduce_op in SUMS and not isinstance(right, Shard):
        return [left, R], [left]
    if isinstance(right, Partial) and right.reduce_op in SUMS and left.is_replicate():
        return [R, right], [right]
    first, second, result = _factors(left, right, call.tensors[0].dim() - 2)
    return [first, second], [result]


@sharding("addmm", "baddbmm")
def product_and_sum(call: Call) -> Decision | None:
    added = call.tensors[0]
    first, second, result = _factors(*call.placements[1:], call.tensors[1].dim() - 2)  # type: ignore[arg-type, call-arg]
    needed = broadcast(added, result.dim, call.outputs[0].dim()) if isinstance(result, Shard) else result
    return [needed, first, second], [result]


@sharding("mv")
def matrix_and_vector(call: Call) -> Decision | None:
    matrix, vector = call.placements
    if isinstance(matrix, Partial) and matrix.reduce_op in SUMS and not isinstance(vector, Shard):
        return [matrix, R], [matrix]
    if isinstance(vector, Partial) and vector.reduce_op in SUMS and matrix.is_replicate():
        return [R, vector], [vector]
    if matrix == Shard(0):
        return [matrix, R], [matrix]
    return ([Shard(1), Shard(0)], [Partial()]) if Shard(1) == matrix or Shard(0) == vector else call.all(R)


@sharding("dot", "vdot")
def dot(call: Call) -> Decision | None:
    first, second = call.placements
    for parts, other, needed in ((first, second, [first, R]), (second, first, [R, second])):
        if isinstance(parts, Partial) and parts.reduce_op in SUMS and not isinstance(other, Shard):
            return needed, [parts]
    return (call.all(Shard(0), Partial())) if call.shard() is not None else call.all(R)
