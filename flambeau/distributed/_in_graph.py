"""Collectives that write in place, inside a captured graph: the functional operator, and a copy of its result.

The compiler sees an operator without side effects and a write that it can place or remove.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed._types import ReduceOp, Work

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "broadcast", "reduce_scatter",
    "reduce_scatter_tensor",
]  # fmt: skip

_NAMES = {
    ReduceOp.SUM: "sum", ReduceOp.AVG: "avg", ReduceOp.PRODUCT: "product", ReduceOp.MIN: "min", ReduceOp.MAX: "max",
    ReduceOp.BAND: "band", ReduceOp.BOR: "bor", ReduceOp.BXOR: "bxor",
}  # fmt: skip


def _done(target: Any, async_op: bool) -> Work | None:
    return Work(None, [target]) if async_op else None


def all_reduce(tensor: Any, op: Any, member: Any, async_op: bool) -> Work | None:
    tensor.copy_(flambeau.ops._c10d_functional.all_reduce(tensor, _NAMES[op], member.group_name))
    return _done(tensor, async_op)


def broadcast(tensor: Any, root: int, member: Any, async_op: bool) -> Work | None:
    tensor.copy_(flambeau.ops._c10d_functional.broadcast(tensor, root, member.group_name))
    return _done(tensor, async_op)


def all_gather(outputs: list[Any], tensor: Any, member: Any, async_op: bool) -> Work | None:
    count = member.size()
    whole = flambeau.ops._c10d_functional.all_gather_into_tensor(tensor, count, member.group_name)
    for output, part in zip(outputs, whole.view(count, *tensor.shape).unbind(0)):
        output.copy_(part.view(output.shape))
    return _done(outputs, async_op)


def reduce_scatter(output: Any, inputs: list[Any], op: Any, member: Any, async_op: bool) -> Work | None:
    return reduce_scatter_tensor(output, flambeau.stack(inputs), op, member, async_op)


def all_gather_into_tensor(output: Any, tensor: Any, member: Any, async_op: bool) -> Work | None:
    whole = flambeau.ops._c10d_functional.all_gather_into_tensor(tensor, member.size(), member.group_name)
    output.copy_(whole.view(output.shape))
    return _done(output, async_op)


def reduce_scatter_tensor(output: Any, tensor: Any, op: Any, member: Any, async_op: bool) -> Work | None:
    rows = tensor.reshape(member.size() * output.shape[0], *output.shape[1:]) if output.dim() else tensor
    part = flambeau.ops._c10d_functional.reduce_scatter_tensor(rows, _NAMES[op], member.size(), member.group_name)
    output.copy_(part.view(output.shape))
    return _done(output, async_op)


def all_to_all_single(
    output: Any, tensor: Any, output_sizes: Any, input_sizes: Any, member: Any, async_op: bool
) -> Work | None:
    count = member.size()
    received = list(output_sizes) if output_sizes else [output.shape[0] // count] * count
    sent = list(input_sizes) if input_sizes else [tensor.shape[0] // count] * count
    output.copy_(flambeau.ops._c10d_functional.all_to_all_single(tensor, received, sent, member.group_name))
    return _done(output, async_op)
