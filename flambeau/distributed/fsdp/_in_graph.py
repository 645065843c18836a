"""`fully_shard` in captured code: the wholes are results of operators, and their derivative reduces the gradients.

Nothing is attached to parameters: gathering a group is a differentiable function of its parts, so that forward and backward,
or a whole training step, are one graph. The compiler decides when collectives start and what is kept for backward.
"""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.autograd import Function
from flambeau.distributed.fsdp._parameters import ParameterGroup, ShardedParameter
from flambeau.distributed.tensor._api import DTensor

__all__ = ["hide", "show"]


class _Gather(Function):
    """The flat parts of all ranks, one after the other; backward averages gradients into this rank's."""

    @staticmethod
    def forward(ctx: Any, flat: Any, group: ParameterGroup) -> Any:
        ctx.group, ctx.dtype = group, flat.dtype
        return flambeau.ops._c10d_functional.all_gather_into_tensor(
            flat, group.shard_group.size(), group.shard_group.group_name
        )

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        group, ops = ctx.group, flambeau.ops._c10d_functional
        ranks, shards = group.shard_group.size(), group.shard_group
        rows = gradient.to(group.policy.reduce_dtype or gradient.dtype)
        part = ops.reduce_scatter_tensor(rows, "sum", shards.size(), shards.group_name)
        if group.replicate_group is not None:
            ranks *= group.replicate_group.size()
            part = ops.all_reduce(part, "sum", group.replicate_group.group_name)
        return (part / (group.divide_factor or ranks)).to(ctx.dtype), None


def _padded(parameter: ShardedParameter) -> Any:
    """This rank's part as collectives take it."""
    local = parameter.sharded.to_local()
    rows = local.movedim(parameter.dim, 0) if parameter.shape else local.view(1)
    missing = parameter.part_size - rows.shape[0]
    if missing:
        rows = flambeau.cat([rows, rows.new_zeros([missing, *rows.shape[1:]])])
    return rows.reshape(-1)


def _whole(parameter: ShardedParameter, columns: Any, ranks: int) -> Any:
    rows = columns.reshape(ranks * parameter.part_size, *parameter.padded_shape[1:])[: parameter._rows()]
    whole = (rows.movedim(0, parameter.dim) if parameter.shape else rows.view(())).contiguous()
    spec = parameter.tensor_spec
    if spec is None:
        return whole
    meta = spec.tensor_meta
    return DTensor.from_local(whole, spec.mesh, spec.placements, shape=meta.shape, stride=meta.stride)  # type: ignore[union-attr]


def show(group: ParameterGroup) -> None:
    """Gives the modules whole parameters."""
    ranks = group.shard_group.size()
    dtypes = [parameter.compute_dtype for parameter in group.parameters]
    for dtype in dict.fromkeys(dtypes):
        members = [parameter for parameter, own in zip(group.parameters, dtypes) if own == dtype]
        flat = flambeau.cat([_padded(parameter).to(dtype) for parameter in members])
        gathered = _Gather.apply(flat, group).view(ranks, flat.shape[0])
        sizes = [parameter.padded.numel() for parameter in members]
        for parameter, columns in zip(members, gathered.split(sizes, 1)):
            whole = _whole(parameter, columns, ranks)
            for module, name in parameter.owners:
                object.__setattr__(module, name, whole)  # found before the part, which stays the parameter


def hide(group: ParameterGroup) -> None:
    """Takes the wholes away again."""
    for parameter in group.parameters:
        for module, name in parameter.owners:
            object.__delattr__(module, name)
