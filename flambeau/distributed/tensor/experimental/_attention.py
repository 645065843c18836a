"""`context_parallel`: sequences divided over processes, with attention over the whole of them.

Inside the block the buffers hold this process's part of their sequence dimension, and `scaled_dot_product_attention` gathers keys and
values of all parts (their gradients go back to the parts). With a causal mask the work of a row grows with its position, hence each
process gets one part from the front of the sequence and its mirror image from the back.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _functional_collectives as functional
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.nn import functional as F

__all__ = ["context_parallel", "context_parallel_unshard", "set_rotate_method"]

_METHODS = ("allgather", "alltoall")
_method = "allgather"


def set_rotate_method(rotate_method: str) -> None:
    """How keys and values travel. Both names are taken; parts are always gathered."""
    global _method
    if rotate_method not in _METHODS:
        raise NotImplementedError(f"[context_parallel] expected one of {_METHODS}, got {rotate_method!r}")
    _method = rotate_method


def _order(length: int, count: int) -> Any:
    """The positions of the sequence in the order of the processes' parts."""
    if length % (2 * count):
        if length % count:
            raise ValueError(
                f"[context_parallel] expected a sequence length that {count} processes divide, got {length}"
            )
        return flambeau.arange(length)
    halves = flambeau.arange(length).chunk(2 * count)
    return flambeau.cat([flambeau.cat([halves[i], halves[2 * count - 1 - i]]) for i in range(count)])


def _part(buffer: Any, dim: int, mesh: DeviceMesh) -> Any:
    count, rank = mesh.size(), mesh.get_local_rank()
    positions = _order(buffer.shape[dim], count).chunk(count)[rank]
    return buffer.index_select(dim, positions.to(buffer.device))


def context_parallel_unshard(
    mesh: DeviceMesh, buffers: Sequence[Any], seq_dims: Sequence[int], load_balancer: Any = None
) -> list[Any]:
    """The whole sequences, in their order, of buffers that hold parts."""
    wholes = []
    for buffer, dim in zip(buffers, seq_dims):
        parts = [flambeau.empty_like(buffer) for _ in range(mesh.size())]
        collectives.all_gather(parts, buffer.detach().contiguous(), mesh.get_group())
        joined = flambeau.cat(parts, dim)
        back = _order(joined.shape[dim], mesh.size()).argsort().to(joined.device)
        wholes.append(joined.index_select(dim, back))
    return wholes


def _attention(mesh: DeviceMesh, plain: Any) -> Any:
    """`scaled_dot_product_attention` of a part of the rows against all of them."""

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if attn_mask is not None:
            raise NotImplementedError("[context_parallel] expected no attn_mask, got one: use is_causal")
        dim, count, group = query.dim() - 2, mesh.size(), mesh.get_group()
        length = key.shape[dim] * count
        order = _order(length, count)
        back = order.argsort().to(query.device)
        key, value = (functional.all_gather_tensor(t, dim, group).index_select(dim, back) for t in (key, value))
        mask = None
        if is_causal:
            rows = order.chunk(count)[mesh.get_local_rank()].to(query.device)
            mask = rows.unsqueeze(1) >= flambeau.arange(length, device=query.device)
        if scale is None:
            scale = 1.0 / math.sqrt(query.shape[-1])
        return plain(query, key, value, mask, dropout_p, False, scale=scale, enable_gqa=enable_gqa)

    return attention


@contextlib.contextmanager
def context_parallel(
    mesh: DeviceMesh,
    *,
    buffers: list[Any] | None = None,
    buffer_seq_dims: list[int] | None = None,
    no_restore_buffers: set[Any] | None = None,
) -> Iterator[None]:
    """A `with` block in which buffers hold parts of their sequences and attention sees the whole of them. After it the buffers
    are whole again, but for those that need not be."""
    buffers, dims = buffers or [], buffer_seq_dims or []
    if len(buffers) != len(dims):
        raise ValueError(
            f"[context_parallel] `seq_dims` must have the same number of elements as `buffers`, got {len(dims)} and "
            f"{len(buffers)}"
        )
    unrestored = {id(buffer) for buffer in no_restore_buffers or ()}
    if not unrestored <= {id(buffer) for buffer in buffers}:
        raise ValueError("[context_parallel] `no_restore_buffers` must be a subset of `buffers`.")
    wholes = [None if id(buffer) in unrestored else buffer.detach().clone() for buffer in buffers]
    with flambeau.no_grad():
        for buffer, dim in zip(buffers, dims):
            part = _part(buffer.detach(), dim, mesh)
            buffer.resize_(part.shape)
            buffer.copy_(part)
    plain = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = _attention(mesh, plain)
    try:
        yield
    finally:
        F.scaled_dot_product_attention = plain
        with flambeau.no_grad():
            for buffer, whole in zip(buffers, wholes):
                if whole is not None:
                    buffer.resize_(whole.shape)
                    buffer.copy_(whole)
