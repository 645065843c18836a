"""Collectives of picklable objects. Receivers get copies; a tensor inside travels with its values."""

from __future__ import annotations

import io
import pickle
from typing import Any

import flambeau
from flambeau.distributed._collectives import _root, all_gather, all_to_all_single, broadcast, recv, send
from flambeau.distributed._groups import (
    _member_group,
    _warn_not_in_group,
    get_global_rank,
)

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
    "send_object_list",
]  # fmt: skip


def _pack(obj: Any) -> Any:
    file = io.BytesIO()
    pickle.Pickler(file).dump(obj)
    return flambeau.frombuffer(bytearray(file.getvalue()), dtype=flambeau.uint8)


def _unpack(data: Any) -> Any:
    return pickle.loads(data.numpy().tobytes())


def _gather_bytes(data: Any, member: Any) -> list[Any]:
    """The byte tensors of all processes, whose lengths differ."""
    sizes = [flambeau.zeros(1, dtype=flambeau.int64) for _ in range(member.size())]
    all_gather(sizes, flambeau.tensor([data.numel()], dtype=flambeau.int64), member)
    lengths = [int(size) for size in sizes]
    received = flambeau.empty(sum(lengths), dtype=flambeau.uint8)
    all_to_all_single(received, data.repeat(member.size()), lengths, [data.numel()] * member.size(), member)
    return list(received.split(lengths))


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every process gets the objects of all, in a list."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_gather_object")
        return
    if len(object_list) < member.size():
        raise ValueError(f"[all_gather_object] expected a list of {member.size()} places, got {len(object_list)}")
    for rank, data in enumerate(_gather_bytes(_pack(obj), member)):
        object_list[rank] = _unpack(data)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """One process gets the objects of all, in a list."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("gather_object")
        return
    root = _root("gather_object", member, dst, group_dst, default=0)
    if member.rank() == root and not object_gather_list:
        raise ValueError("[gather_object] Argument ``gather_list`` must be specified on destination rank.")
    if member.rank() != root and object_gather_list:
        raise ValueError("[gather_object] Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    data = _pack(obj)
    sizes = [flambeau.zeros(1, dtype=flambeau.int64) for _ in range(member.size())]
    all_gather(sizes, flambeau.tensor([data.numel()], dtype=flambeau.int64), member)
    lengths = [int(size) for size in sizes] if member.rank() == root else [0] * member.size()
    received = flambeau.empty(sum(lengths), dtype=flambeau.uint8)
    counts = [data.numel() if rank == root else 0 for rank in range(member.size())]
    all_to_all_single(received, data, lengths, counts, member)
    if object_gather_list is not None and member.rank() == root:
        for rank, part in enumerate(received.split(lengths)):
            object_gather_list[rank] = _unpack(part)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Every process gets the objects of one, in place of those in its list."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("broadcast_object_list")
        return
    root = _root("broadcast_object_list", member, src, group_src, default=0)
    own = member.rank() == root
    parts = [_pack(obj) for obj in object_list] if own else []
    sizes = flambeau.tensor([part.numel() for part in parts] if own else [0] * len(object_list), dtype=flambeau.int64)
    broadcast(sizes, group=member, group_src=root)
    lengths = sizes.tolist()
    data = flambeau.cat(parts) if own and parts else flambeau.empty(sum(lengths), dtype=flambeau.uint8)
    broadcast(data, group=member, group_src=root)
    if not own:
        for index, part in enumerate(data.split(lengths)):
            object_list[index] = _unpack(part)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Every process gets its object of a list that one process has, as the first item of its output list."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("scatter_object_list")
        return
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError(
            "[scatter_object_list] Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    root = _root("scatter_object_list", member, src, group_src, default=0)
    own = member.rank() == root
    if own and (scatter_object_input_list is None or len(scatter_object_input_list) != member.size()):
        raise ValueError(
            "[scatter_object_list] source rank must provide non-None scatter_object_input_list with one object for each of the "
            f"{member.size()} ranks"
        )
    parts = [_pack(obj) for obj in scatter_object_input_list or []] if own else []
    lengths = flambeau.tensor([p.numel() for p in parts] if own else [0] * member.size(), dtype=flambeau.int64)
    broadcast(lengths, group=member, group_src=root)
    sizes = lengths.tolist()
    data = flambeau.cat(parts) if own else flambeau.empty(0, dtype=flambeau.uint8)
    received = flambeau.empty(sizes[member.rank()], dtype=flambeau.uint8)
    expected = [sizes[member.rank()] if rank == root else 0 for rank in range(member.size())]
    all_to_all_single(received, data, expected, sizes if own else [0] * member.size(), member)
    scatter_object_output_list[0] = _unpack(received)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send objects to a process that calls `recv_object_list`."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("send_object_list")
        return
    target = _root("send_object_list", member, dst, group_dst)
    parts = [_pack(obj) for obj in object_list]
    send(flambeau.tensor([part.numel() for part in parts], dtype=flambeau.int64), group=member, group_dst=target)
    send(flambeau.cat(parts), group=member, group_dst=target)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive objects into a list; returns the sender's global rank."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("recv_object_list")
        return -1
    sizes = flambeau.zeros(len(object_list), dtype=flambeau.int64)
    anybody = src is None and group_src is None
    source = None if anybody else _root("recv_object_list", member, src, group_src)
    sender = recv(sizes, group=member) if source is None else recv(sizes, group=member, group_src=source)
    data = flambeau.empty(int(sizes.sum()), dtype=flambeau.uint8)
    recv(data, src=sender, group=member)
    for index, part in enumerate(data.split(sizes.tolist())):
        object_list[index] = _unpack(part)
    return sender if source is None else get_global_rank(member, source)
