"""The collectives and messages of `flambeau.distributed`.

Each takes the group (None: all processes) and returns None, or a handle with `async_op=True`. On processes outside the group
they warn and do nothing. Ranks in arguments are global; `group_src` and `group_dst` count within the group.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from flambeau.autograd.profiler import _active as profilers
from flambeau.autograd.profiler import record_function
from flambeau.distributed import _in_graph
from flambeau.distributed._groups import (
    GroupMember,
    _member_group,
    _warn_not_in_group,
    get_global_rank,
    get_group_rank,
    supports_complex,
)
from flambeau.distributed._process_group import ProcessGroup, equal_parts, split_for_ranks
from flambeau.distributed._types import DistBackendError, ReduceOp, Work, Works

__all__ = [
    "P2POp", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "gather",
    "irecv", "isend", "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter", "send",
]  # fmt: skip

Tensor = flambeau.Tensor


def _check_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"[distributed] Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )


def _check_tensors(name: str, values: Any) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, Tensor) for value in values):
        raise TypeError(
            f"[distributed] Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
            f"             but got {type(values)} with elements of type {[type(v) for v in values] if isinstance(values, (list, tuple)) else ''}."
        )


def _check_dtypes(*groups: Any) -> None:
    dtypes = {
        tensor.dtype for tensors in groups for tensor in (tensors if isinstance(tensors, (list, tuple)) else [tensors])
    }
    if len(dtypes) > 1:
        raise ValueError(
            f"[distributed] Invalid usage of tensors with different dtypes. Found {' and '.join(map(str, dtypes))}"
        )


def _check_complex(op_name: str, tensor: Any, op: Any) -> None:
    if tensor.is_complex() and not supports_complex(op):
        raise ValueError(f"[{op_name}] {op_name} does not support {op} on complex tensors")


def _root(op: str, group: ProcessGroup, rank: int | None, group_rank: int | None, default: int | None = None) -> int:
    """A root's rank within the group."""
    if rank is not None and group_rank is not None:
        raise ValueError(f"[{op}] Can't specify both a global rank and a group rank, got {rank} and {group_rank}")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"[{op}] expected a group rank below {group.size()}, got {group_rank}")
        return group_rank
    if rank is None:
        if default is None:
            raise ValueError(f"[{op}] Must specify a rank or a group rank, got neither")
        rank = default if group is GroupMember.WORLD else get_global_rank(group, default)
    if group is GroupMember.WORLD:
        if not 0 <= rank < group.size():
            raise RuntimeError(f"[{op}] expected a rank below {group.size()}, got invalid root rank: {rank}")
        return rank
    return get_group_rank(group, rank)


watchers: list[Callable[[str], None]] = []  # told of each collective by its operator (`tensor.debug.CommDebugMode`)
_names: list[str] = []  # by which operator the collective goes that runs next, where another one runs it


def name_next(operator: str) -> None:
    """The next collective is told to watchers as part of this operator."""
    if watchers:
        _names.append(operator)


def _tell(method: str, arguments: tuple[Any, ...], result: Any) -> None:
    """Tells watchers of a collective by its operator."""
    operator = _names.pop() if _names else f"c10d.{_operator(method, arguments, result)}"
    for watcher in watchers:
        watcher(operator)


def _operator(method: str, arguments: tuple[Any, ...], result: Any) -> str:
    """PyTorch's name of a collective, which has another one for lists than for whole tensors."""
    plain = {"all_reduce": "allreduce_", "all_to_all": "alltoall_", "all_gather": "allgather_"}.get(
        method, f"{method}_"
    )
    if method == "barrier":
        plain = "barrier"
    elif method == "all_gather" and result is not arguments[0]:
        plain = "_allgather_base_"
    elif method == "reduce_scatter" and isinstance(arguments[1], tuple):  # parts of one tensor
        plain = "_reduce_scatter_base_"
    elif method == "all_to_all" and result is not arguments[0]:
        plain = "alltoall_base_"
    return plain


def _submit(
    group: ProcessGroup, method: str, arguments: tuple[Any, ...], result: Any, async_op: bool, timeout: Any = None
) -> Any:
    if watchers:
        _tell(method, arguments, result)
    if profilers:
        with record_function(f"c10d::{_operator(method, arguments, result)}"):
            return _start(group, method, arguments, result, async_op, timeout)
    return _start(group, method, arguments, result, async_op, timeout)


def _start(
    group: ProcessGroup, method: str, arguments: tuple[Any, ...], result: Any, async_op: bool, timeout: Any
) -> Any:
    if _coalescing is not None:
        work = group.run(method, arguments, result, False, timeout)
        _coalescing.append(work)
        return work if async_op else None
    if group._native is None:  # a backend written in Python
        return _foreign(group, method, arguments, result, async_op)
    return group.run(method, arguments, result, not async_op, timeout)


def _foreign(group: Any, method: str, arguments: tuple[Any, ...], result: Any, async_op: bool) -> Any:
    """Calls a group that a program defined itself, by PyTorch's names and options."""
    from flambeau.distributed import _types

    options: Any = _types.AllreduceOptions()
    calls: dict[str, Callable[..., Any]] = {
        "all_reduce": lambda t, op: group.allreduce([t], _set(options, reduceOp=ReduceOp(op))),
        "broadcast": lambda t, root: group.broadcast([t], _set(options, rootRank=root)),
        "reduce": lambda t, root, op: group.reduce([t], _set(options, rootRank=root, reduceOp=ReduceOp(op))),
        "all_gather": lambda to, t: group.allgather([to], [t], options),
        "gather": lambda to, t, root: group.gather([to] if to else [], [t], _set(options, rootRank=root)),
        "scatter": lambda t, inputs, root: group.scatter([t], [inputs] if inputs else [], _set(options, rootRank=root)),
        "reduce_scatter": lambda t, inputs, op: group.reduce_scatter(
            [t], [list(inputs)], _set(options, reduceOp=ReduceOp(op))
        ),
        "all_to_all": lambda to, inputs: group.alltoall(to, inputs, options),
        "barrier": lambda: group.barrier(options),
        "send": lambda t, to, tag: group.send([t], to, tag),
        "receive": lambda t, source, tag: (
            group.recv([t], source, tag) if source >= 0 else group.recv_anysource([t], tag)
        ),
    }
    work = calls[method](*arguments)
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


def _set(options: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(options, name, value)
    return options


# ---------------------------------------------------------------------------------------------- collectives


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Every process gets the reduction of all their tensors, in place."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_reduce")
        return None
    if flambeau.compiler.is_compiling():
        return _in_graph.all_reduce(tensor, op, member, async_op)
    if (
        type(op) is ReduceOp.RedOpType
        and op is not ReduceOp.PREMUL_SUM
        and not (async_op or profilers or _coalescing is not None)
    ):
        # The way of small tensors, where every call counts.
        native = member._native
        if native is not None and not tensor.is_sparse and not tensor.is_complex():
            if watchers:
                _tell("all_reduce", (tensor,), [tensor])
            try:
                native.all_reduce(tensor, op, False, member._limit)
            except DistBackendError as error:
                member.record_failure(error)
                raise
            return None
    if tensor.is_sparse:
        return all_reduce_sparse(tensor, op, member, async_op)
    if tensor.is_complex():
        _check_complex("all_reduce", tensor, op)
    number, (sent,) = member.reducing(op, (tensor,), True)
    return _submit(member, "all_reduce", (sent, number), [tensor], async_op)


def all_reduce_sparse(tensor: Tensor, op: Any, member: ProcessGroup, async_op: bool) -> Work | None:
    """Sparse tensors are summed by gathering their entries."""
    from flambeau.distributed._objects import all_gather_object

    if op != ReduceOp.SUM:
        raise RuntimeError(f"[all_reduce] expected a sum of sparse tensors, got unsupported reduction operation {op}")
    own = tensor.coalesce()
    entries: list[Any] = [None] * member.size()
    all_gather_object(entries, (own.indices(), own.values()), member)
    indices = flambeau.cat([entry[0] for entry in entries], 1)
    values = flambeau.cat([entry[1] for entry in entries], 0)
    total = flambeau.sparse_coo_tensor(indices, values, tensor.shape).coalesce()
    with flambeau.no_grad():
        tensor.copy_(total)
    return Work(None, [tensor]) if async_op else None


def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """`all_reduce` of several tensors as one operation."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    _check_tensors("tensors", tensors)
    _check_dtypes(tensors)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_reduce_coalesced")
        return None
    for tensor in tensors:
        _check_complex("all_reduce_coalesced", tensor, op)
    works = [all_reduce(tensor, op, member, async_op=True) for tensor in _each_once(tensors)]
    return _together(works, tensors, async_op)


def _each_once(tensors: list[Tensor]) -> list[Tensor]:
    """Without the repetitions of a tensor, which is reduced once."""
    return list({id(tensor): tensor for tensor in tensors}.values())


def _together(works: list[Any], result: Any, async_op: bool) -> Any:
    """Waits for all, or gives a future of the result, as coalesced collectives do in PyTorch."""
    joined = Works(works, result)
    if async_op:
        return joined.get_future()
    joined.wait()
    return None


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Every process gets the tensor of one."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("broadcast")
        return None
    root = _root("broadcast", member, src, group_src)
    if flambeau.compiler.is_compiling():
        return _in_graph.broadcast(tensor, root, member, async_op)
    return _submit(member, "broadcast", (tensor, root), [tensor], async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """One process gets the reduction of all tensors, in place."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("reduce")
        return None
    root = _root("reduce", member, dst, group_dst)
    _check_complex("reduce", tensor, op)
    number, (sent,) = member.reducing(op, (tensor,), member.rank() == root)
    return _submit(member, "reduce", (sent, root, number), [tensor], async_op)


def all_gather(tensor_list: Any, tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Every process gets the tensors of all, in a list."""
    _check_tensors("tensor_list", tensor_list)
    _check_tensor("tensor", tensor)
    _check_dtypes(tensor_list, tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_gather")
        return None
    if flambeau.compiler.is_compiling():
        return _in_graph.all_gather(tensor_list, tensor, member, async_op)
    return _submit(member, "all_gather", (tensor_list, tensor), tensor_list, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Every process gets the tensors of all, one after the other in one tensor."""
    _check_tensor("input_tensor", input_tensor)
    _check_tensor("output_tensor", output_tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_gather_into_tensor")
        return None
    if flambeau.compiler.is_compiling():
        return _in_graph.all_gather_into_tensor(output_tensor, input_tensor, member, async_op)
    parts = equal_parts("all_gather_into_tensor", output_tensor, member.size(), input_tensor)
    return _submit(member, "all_gather", (parts, input_tensor), [output_tensor], async_op)


_all_gather_base = all_gather_single = all_gather_into_tensor


def all_gather_coalesced(
    output_tensor_lists: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False
) -> Any:
    """`all_gather` of several tensors: `output_tensor_lists[rank][i]` is tensor i of a rank."""
    _check_tensors("tensor_list", input_tensor_list)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_gather_coalesced")
        return None
    works = [
        all_gather([outputs[i] for outputs in output_tensor_lists], tensor, member, async_op=True)
        for i, tensor in enumerate(input_tensor_list)
    ]
    return _together(works, output_tensor_lists, async_op)


def gather(
    tensor: Tensor,
    gather_list: Any = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """One process gets the tensors of all, in a list."""
    _check_tensor("tensor", tensor)
    if gather_list:
        _check_tensors("gather_list", gather_list)
        _check_dtypes(gather_list, tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("gather")
        return None
    root = _root("gather", member, dst, group_dst, default=0)
    if member.rank() == root and not gather_list:
        raise ValueError("[gather] Argument ``gather_list`` must be specified on destination rank.")
    if member.rank() != root and gather_list:
        raise ValueError("[gather] Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    return _submit(member, "gather", (gather_list or [], tensor, root), gather_list, async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Any = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Every process gets its tensor of a list that one process has."""
    _check_tensor("tensor", tensor)
    if scatter_list:
        _check_tensors("scatter_list", scatter_list)
        _check_dtypes(scatter_list, tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("scatter")
        return None
    root = _root("scatter", member, src, group_src, default=0)
    if member.rank() == root and not scatter_list:
        raise ValueError("[scatter] Argument ``scatter_list`` must be specified on source rank.")
    if member.rank() != root and scatter_list:
        raise ValueError("[scatter] Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    return _submit(member, "scatter", (tensor, scatter_list or [], root), [tensor], async_op)


def reduce_scatter(
    output: Tensor, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Every process gets the reduction of all processes' tensors at its place in their lists."""
    _check_tensor("output", output)
    _check_tensors("input_list", input_list)
    _check_dtypes(output, input_list)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("reduce_scatter")
        return None
    if flambeau.compiler.is_compiling():
        return _in_graph.reduce_scatter(output, input_list, op, member, async_op)
    _check_complex("reduce_scatter", output, op)
    number, sent = member.reducing(op, input_list, False)
    return _submit(member, "reduce_scatter", (output, sent, number), [output], async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`reduce_scatter` of the equal parts of one tensor."""
    _check_tensor("output", output)
    _check_tensor("input", input)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("reduce_scatter_tensor")
        return None
    if flambeau.compiler.is_compiling():
        return _in_graph.reduce_scatter_tensor(output, input, op, member, async_op)
    _check_complex("reduce_scatter_tensor", output, op)
    number, sent = member.reducing(op, equal_parts("reduce_scatter_tensor", input, member.size(), output), False)
    return _submit(member, "reduce_scatter", (output, tuple(sent), number), [output], async_op)


_reduce_scatter_base = reduce_scatter_single = reduce_scatter_tensor


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False) -> Any:
    """Process i sends tensor j of its list to process j, which gets it as tensor i of its own."""
    _check_tensors("output_tensor_list", output_tensor_list)
    _check_tensors("input_tensor_list", input_tensor_list)
    _check_dtypes(output_tensor_list, input_tensor_list)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_to_all")
        return None
    return _submit(member, "all_to_all", (output_tensor_list, input_tensor_list), output_tensor_list, async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`all_to_all` of the parts of one tensor along its first dimension."""
    _check_tensor("output", output)
    _check_tensor("input", input)
    _check_dtypes(output, input)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("all_to_all_single")
        return None
    if flambeau.compiler.is_compiling():
        return _in_graph.all_to_all_single(output, input, output_split_sizes, input_split_sizes, member, async_op)
    outputs = split_for_ranks("all_to_all_single", output, output_split_sizes, member.size())
    inputs = split_for_ranks("all_to_all_single", input, input_split_sizes, member.size())
    return _submit(member, "all_to_all", (outputs, inputs), [output], async_op)


def barrier(
    group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: datetime.timedelta | None = None
) -> Work | None:
    """Returns when all processes of the group have called it."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("barrier")
        return None
    return _submit(member, "barrier", (), None, async_op, timeout)


# ---------------------------------------------------------------------------------------------- messages


def _peer(op: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    peer = _root(op, group, rank, group_rank)
    if peer == group.rank():
        kind = "destination" if "send" in op else "source"
        raise ValueError(
            f"[{op}] Invalid {kind} rank: {kind} rank should not be the same as the rank of the current process."
        )
    return peer


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Start sending a tensor, which must not change before the handle is waited for."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("isend")
        return None
    peer = _peer("isend", member, dst, group_dst)
    return _submit(member, "send", (tensor, peer, tag), [tensor], True)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Start receiving a tensor, from anybody when no source is given."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("irecv")
        return None
    peer = -1 if src is None and group_src is None else _peer("irecv", member, src, group_src)
    if member._native is None:
        return _submit(member, "receive", (tensor, peer, tag), [tensor], True)
    handle = member._native.receive(tensor, peer, tag, True, member.limit())
    return Work(handle, [tensor], lambda rank: get_global_rank(member, rank))


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor; returns when the receiver has it."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("send")
        return
    peer = _peer("send", member, dst, group_dst)
    if member._native is None:
        member.send([tensor], peer, tag).wait()
        return
    member._native.send(tensor, peer, tag, False, member.limit())


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor, from anybody when no source is given. Returns the sender's global rank."""
    _check_tensor("tensor", tensor)
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("recv")
        return -1
    peer = -1 if src is None and group_src is None else _peer("recv", member, src, group_src)
    if member._native is None:
        work = member.recv([tensor], peer, tag) if peer >= 0 else member.recv_anysource([tensor], tag)
        work.wait()
        return get_global_rank(member, work.source_rank() if peer < 0 else peer)
    handle = member._native.receive(tensor, peer, tag, False, member.limit())
    return get_global_rank(member, max(peer, 0) if member._is_fake else handle.source())


class P2POp:
    """A send or receive for `batch_isend_irecv`."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                f"[P2POp] Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                f"``torch.distributed.irecv``, got {op}"
            )
        _check_tensor("tensor", tensor)
        member = _member_group(group)
        if member is None:
            raise ValueError("[P2POp] expected a group of this process, got another")
        self.group_peer = _peer("isend" if op is isend else "irecv", member, peer, group_peer)
        self.op, self.tensor, self.group, self.tag = op, tensor, group, tag
        self.peer = get_global_rank(member, self.group_peer)

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__}, peer={self.peer}, {tuple(self.tensor.shape)}, {self.tensor.dtype})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Start several sends and receives; returns their handles."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(item, P2POp) for item in p2p_op_list):
        raise ValueError(
            "[batch_isend_irecv] Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``."
        )
    if not p2p_op_list:
        raise IndexError("[batch_isend_irecv] expected at least one operation, got none")
    member = _member_group(p2p_op_list[0].group)
    together = getattr(member._native, "batch", None) if member is not None else None
    with together([item.tensor for item in p2p_op_list]) if together is not None else contextlib.nullcontext():
        works = [item.op(item.tensor, group=item.group, tag=item.tag, **_peer_argument(item)) for item in p2p_op_list]
    return [work for work in works if work is not None]


def _peer_argument(item: P2POp) -> dict[str, int]:
    return {"group_dst" if item.op is isend else "group_src": item.group_peer}


_BARRIER_TAG = -(1 << 40)  # not used by programs


def monitored_barrier(
    group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier that says on rank 0 which ranks did not come in time."""
    member = _member_group(group)
    if member is None:
        _warn_not_in_group("monitored_barrier")
        return
    limit, native = member.limit(timeout), member._native
    token = flambeau.zeros(1, dtype=flambeau.uint8)
    if member.rank() != 0:
        native.send(token, 0, _BARRIER_TAG, False, limit)
        try:
            native.receive(token, 0, _BARRIER_TAG, False, limit)
        except DistBackendError as error:
            raise RuntimeError(
                f"[monitored_barrier] Rank {member.rank()} successfully reached monitoredBarrier, but received errors while "
                f"waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank. Original exception: {error}"
            ) from error
        return
    missing = []
    handles = [
        (rank, native.receive(flambeau.empty_like(token), rank, _BARRIER_TAG, True, limit))
        for rank in range(1, member.size())
    ]
    for rank, handle in handles:
        try:
            handle.wait(-1)
        except DistBackendError:
            missing.append(rank)
            if not wait_all_ranks:
                break
    if missing:
        names = ", ".join(map(str, missing))
        raise RuntimeError(
            f"[monitored_barrier] Rank{'s' if len(missing) > 1 else ''} {names} failed to pass monitoredBarrier in {limit} ms"
        )
    for rank in range(1, member.size()):
        native.send(token, rank, _BARRIER_TAG, False, limit)


# ---------------------------------------------------------------------------------------------- coalescing

_coalescing: list[Any] | None = None


class _CoalescingManager:
    """The handles of what was started in a `_coalescing_manager` block."""

    def __init__(self) -> None:
        self.works: list[Any] = []

    def append(self, work: Any = None) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def _coalescing_manager(
    group: Any = None, device: Any = None, async_ops: bool | None = False
) -> Iterator[_CoalescingManager]:
    """Collectives inside the block are started one after the other and waited for at its end, or by `wait()`."""
    global _coalescing
    if _coalescing is not None:
        raise AssertionError("[_coalescing_manager] expected no block inside a block, got one")
    manager = _CoalescingManager()
    _coalescing = manager.works
    try:
        yield manager
    finally:
        _coalescing = None
    if not async_ops:
        manager.wait()
