"""Changes of placement of a local tensor, by collectives along one mesh dimension after the other.

On tensors without data, which stand for those of a graph being recorded, collectives are functional operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._types import ReduceOp
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._spec import compute_local_shape
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["redistribute_local"]

_OPS = {
    "sum": ReduceOp.SUM, "avg": ReduceOp.AVG, "max": ReduceOp.MAX, "min": ReduceOp.MIN, "product": ReduceOp.PRODUCT,
}  # fmt: skip


def _note(kind: str, tensor: Any) -> None:
    """Counts the collective that follows as an operator of graphs, which it is on tensors without data."""
    if not tensor.is_meta:
        collectives.name_next(f"c10d_functional.{kind}")


def _chunk(tensor: Any, placement: Shard, count: int, index: int) -> Any:
    if isinstance(placement, _StridedShard):
        dim, pieces = placement.dim, placement.split_factor
        inner = tensor.unflatten(dim, (pieces, tensor.shape[dim] // pieces))
        return _chunk(inner, Shard(dim + 1), count, index).flatten(dim, dim + 1)
    dim = placement.dim
    size, start = Shard.local_shard_size_and_offset(tensor.shape[dim], count, index)
    return tensor.narrow(dim, min(start, tensor.shape[dim]), size).contiguous()


def _all_gather(tensor: Any, placement: Shard, whole: int, group: Any) -> Any:
    """Parts of a dimension of size `whole`, side by side; parts may be uneven."""
    count, dim = group.size(), placement.dim
    if isinstance(placement, _StridedShard):
        pieces = placement.split_factor
        inner = tensor.unflatten(dim, (pieces, tensor.shape[dim] // pieces))
        return _all_gather(inner, Shard(dim + 1), whole // pieces, group).flatten(dim, dim + 1)
    full = -(-whole // count)
    sizes = [Shard.local_shard_size_and_offset(whole, count, rank)[0] for rank in range(count)]
    shape = list(tensor.shape)
    shape[dim] = full
    padded = tensor.contiguous()
    if tensor.shape[dim] != full:
        padded = tensor.new_zeros(shape)
        padded.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    _note("all_gather_into_tensor", padded)
    if tensor.is_meta:
        gathered = flambeau.ops._c10d_functional.all_gather_into_tensor(padded, count, group.group_name)
        if dim == 0 and whole == full * count:
            return gathered
        parts = gathered.view(count, *shape).unbind(0)
    else:
        parts = [tensor.new_empty(shape) for _ in range(count)]
        collectives.all_gather(parts, padded, group)
    return flambeau.cat([part.narrow(dim, 0, size) for part, size in zip(parts, sizes)], dim)


def _power(op: str) -> float | None:
    """The p of norms of parts; None for other reductions."""
    return float(op.removeprefix("norm")) if op.startswith("norm") else None


def _reduce_scatter(tensor: Any, dim: int, op: str, group: Any) -> Any:
    count = group.size()
    if _power(op) is not None or tensor.shape[dim] % count:
        return _chunk(_all_reduce(tensor, op, group), Shard(dim), count, group.rank())
    _note("reduce_scatter_tensor", tensor)
    if tensor.is_meta:
        rows = tensor if dim == 0 else flambeau.cat(tensor.chunk(count, dim), 0)
        return flambeau.ops._c10d_functional.reduce_scatter_tensor(rows.contiguous(), op, count, group.group_name)
    parts = [part.contiguous() for part in tensor.chunk(count, dim)]
    result = flambeau.empty_like(parts[0])
    collectives.reduce_scatter(result, parts, _OPS[op], group)
    return result


def _all_reduce(tensor: Any, op: str, group: Any) -> Any:
    power = _power(op)
    if power is not None and power != math.inf:
        return _all_reduce(tensor**power, "sum", group) ** (1 / power)
    _note("all_reduce", tensor)
    if tensor.is_meta:
        name = "max" if power is not None else op
        return flambeau.ops._c10d_functional.all_reduce(tensor, name, group.group_name)
    result = tensor.clone(memory_format=flambeau.contiguous_format)
    collectives.all_reduce(result, ReduceOp.MAX if power is not None else _OPS[op], group)
    return result


def _replicate_to_partial(tensor: Any, op: str, group: Any) -> Any:
    if group.rank() == 0 or op in ("avg", "max", "min"):
        return tensor
    return flambeau.ones_like(tensor) if op == "product" else flambeau.zeros_like(tensor)


def _must_open(source: Sequence[Placement], target: Sequence[Placement]) -> list[int]:
    """Mesh dimensions whose division has to be undone: those that change, and later divisions of the same dimension."""
    opened = [i for i in range(len(source)) if source[i] != target[i]]
    for i in list(opened):
        dims = {p.dim for p in (source[i], target[i]) if isinstance(p, Shard)}
        for j in range(i + 1, len(source)):
            same = any(isinstance(p, Shard) and p.dim in dims for p in (source[j], target[j]))
            if same and j not in opened:
                opened.append(j)
    return sorted(opened)


def redistribute_local(
    local: Any, mesh: DeviceMesh, shape: Sequence[int], source: Sequence[Placement], target: Sequence[Placement]
) -> Any:
    """This process's part of a tensor under other placements."""
    if tuple(source) == tuple(target) or mesh.get_coordinate() is None:
        return local
    opened = _must_open(source, target)
    current = list(source)
    for mesh_dim in reversed(opened):
        placement, group = current[mesh_dim], mesh.get_group(mesh_dim)
        wanted = target[mesh_dim]
        alone = len(opened) == 1
        if isinstance(placement, Partial):
            if alone and type(wanted) is Shard:
                return _reduce_scatter(local, wanted.dim, placement.reduce_op, group)
            local = _all_reduce(local, placement.reduce_op, group)
        elif isinstance(placement, Shard):
            outer = compute_local_shape(shape, mesh, current[:mesh_dim])
            local = _all_gather(local, placement, outer[placement.dim], group)
        current[mesh_dim] = Replicate()
    for mesh_dim in opened:
        wanted, group = target[mesh_dim], mesh.get_group(mesh_dim)
        if isinstance(wanted, Shard):
            local = _chunk(local, wanted, mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim))
        elif isinstance(wanted, Partial):
            local = _replicate_to_partial(local, wanted.reduce_op, group)
    return local
