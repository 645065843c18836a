"""`loss_parallel`: cross entropy of logits that are divided along the classes, without gathering them.

Each process reduces the classes it has; what is exchanged has one number for each row: the largest logit, the sum of exponentials
and the logit of the target.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed._types import ReduceOp
from flambeau.distributed.tensor import _dispatch
from flambeau.distributed.tensor._spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.placement_types import Replicate, Shard

__all__ = ["loss_parallel"]


def _whole(value: Any) -> Any:
    """A replicated value as a plain tensor."""
    return value.full_tensor() if hasattr(value, "_local_tensor") else value


def _class_dim(logits: Any) -> int:
    return 0 if logits.dim() == 1 else 1


def _mesh_dim(logits: Any) -> int | None:
    """The mesh dimension along which the classes are divided, when everything else is replicated."""
    spec = getattr(logits, "_spec", None)
    if spec is None:
        return None
    divided = [i for i, placement in enumerate(spec.placements) if not placement.is_replicate()]
    return divided[0] if len(divided) == 1 and spec.placements[divided[0]] == Shard(_class_dim(logits)) else None


def _own_targets(logits: Any, mesh_dim: int, target: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    """Targets within this process's classes, which of them lie there, and which are counted at all."""
    mesh, dim = logits._spec.mesh, _class_dim(logits)
    size, start = Shard.local_shard_size_and_offset(
        logits.shape[dim], mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim)
    )
    counted = target != ignore_index
    here = counted & (target >= start) & (target < start + size)
    return flambeau.where(here, target - start, 0), here, counted


def _shares(weight: Any, target: Any, counted: Any, dtype: Any) -> Any:
    if weight is None:
        return counted.to(dtype)
    safe = flambeau.where(counted, target, 0)
    return flambeau.where(counted, weight.index_select(0, safe.reshape(-1)).reshape(safe.shape), 0)


def _replicated(kind: Any, value: Any, mesh: Any) -> Any:
    meta = TensorMeta(value.shape, tuple(value.stride()), value.dtype)
    return kind(value, DTensorSpec(mesh, (Replicate(),) * mesh.ndim, meta))


def _forward(kind: Any, args: tuple[Any, ...]) -> Any:
    logits, target, weight, reduction, ignore_index = args
    mesh_dim = _mesh_dim(logits)
    if mesh_dim is None:
        return NotImplemented
    mesh, dim, local = logits._spec.mesh, _class_dim(logits), logits._local_tensor
    group, target, weight = mesh.get_group(mesh_dim), _whole(target), _whole(weight)
    largest = local.amax(dim, keepdim=True) if local.shape[dim] else local.new_full(target.shape, -float("inf"))
    largest = largest.reshape(target.shape).contiguous()
    collectives.all_reduce(largest, ReduceOp.MAX, group)
    sums = (local - largest.unsqueeze(dim)).exp().sum(dim).contiguous()
    place, here, counted = _own_targets(logits, mesh_dim, target, ignore_index)
    picked = local.gather(dim, place.unsqueeze(dim)).squeeze(dim) if local.shape[dim] else local.new_zeros(target.shape)
    picked = flambeau.where(here, picked, 0).contiguous()
    both = flambeau.stack([sums, picked])
    collectives.all_reduce(both, ReduceOp.SUM, group)
    log_sums = both[0].log() + largest
    share = _shares(weight, target, counted, local.dtype)
    rows = flambeau.where(counted, (log_sums - both[1]) * share, 0)
    total = share.sum()
    loss = rows if reduction == 0 else rows.sum() / total if reduction == 1 else rows.sum()
    return tuple(_replicated(kind, value, mesh) for value in (loss, total, log_sums))


def _backward(kind: Any, args: tuple[Any, ...]) -> Any:
    grad, logits, target, weight, reduction, ignore_index, total, log_sums = args
    mesh_dim = _mesh_dim(logits)
    if mesh_dim is None:
        return NotImplemented
    dim, local = _class_dim(logits), logits._local_tensor
    grad, target, weight = _whole(grad), _whole(target), _whole(weight)
    place, here, counted = _own_targets(logits, mesh_dim, target, ignore_index)
    rows = grad * _shares(weight, target, counted, local.dtype)
    if reduction == 1:
        rows = rows / _whole(total)
    result = (local - _whole(log_sums).unsqueeze(dim)).exp() * rows.unsqueeze(dim)
    if local.shape[dim]:
        result = result.scatter_add(dim, place.unsqueeze(dim), -flambeau.where(here, rows, 0).unsqueeze(dim))
    return kind(result, logits._spec)


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A `with` block for the loss and its backward pass. Labels may be plain tensors, the same on all processes."""
    before = _dispatch.implicit_replication, dict(_dispatch.handlers)
    _dispatch.implicit_replication = True
    _dispatch.handlers["_cross_entropy_forward"] = _forward
    _dispatch.handlers["_cross_entropy_backward"] = _backward
    try:
        yield
    finally:
        _dispatch.implicit_replication = before[0]
        _dispatch.handlers.clear()
        _dispatch.handlers.update(before[1])
