"""Groups and collectives of a world with one process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

import flambeau
from flambeau.distributed.constants import default_pg_timeout

__all__ = [
    "Backend", "GroupMember", "P2POp", "ProcessGroup", "ReduceOp", "Work", "all_gather", "all_gather_coalesced",
    "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_reduce_coalesced", "all_to_all",
    "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list",
    "destroy_process_group", "gather", "gather_object", "get_backend", "get_backend_config",
    "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count",
    "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_available", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "isend",
    "monitored_barrier", "new_group", "new_subgroups", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "reduce_op", "scatter", "scatter_object_list", "send", "supports_complex",
]  # fmt: skip


# ---------------------------------------------------------------------------------------------- kinds


class Backend(str):
    """The name of the library behind a group."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    backend_list: ClassVar[list[str]] = ["undefined", "gloo"]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"[Backend] expected a name, got {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Any, extended_api: bool = False, devices: Any = None) -> None:
        cls.backend_list.append(name.lower())


class _Reduction(int):
    """One of the members of `ReduceOp`."""

    name: str

    def __new__(cls, value: int, name: str) -> _Reduction:
        self = super().__new__(cls, value)
        self.name = name
        return self

    def __repr__(self) -> str:
        return f"<RedOpType.{self.name}: {int(self)}>"

    def __str__(self) -> str:
        return f"RedOpType.{self.name}"


class ReduceOp:
    """How the tensors of several processes become one."""

    class RedOpType:
        SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = (
            _Reduction(i, n) for i, n in enumerate("SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM".split())
        )

    SUM, AVG, PRODUCT, MIN, MAX = RedOpType.SUM, RedOpType.AVG, RedOpType.PRODUCT, RedOpType.MIN, RedOpType.MAX
    BAND, BOR, BXOR, PREMUL_SUM = RedOpType.BAND, RedOpType.BOR, RedOpType.BXOR, RedOpType.PREMUL_SUM

    def __new__(cls, op: Any = RedOpType.SUM) -> Any:
        return op


reduce_op = ReduceOp


class Work:
    """A collective that was started; it is finished already."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self._result

    def synchronize(self) -> None: ...

    def get_future(self) -> Any:
        from flambeau.futures import Future

        future: Any = Future()
        future.set_result(self._result)
        return future


class ProcessGroup:
    """A group of processes: this one."""

    def __init__(self, name: str, ranks: Sequence[int], backend: str) -> None:
        self.group_name, self._ranks, self._backend = name, list(ranks), backend
        self.group_desc = "default_pg" if name == "0" else "undefined"
        self.bound_device_id = None

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return len(self._ranks)

    def name(self) -> str:
        return self._backend

    def allreduce(self, tensors: Any, op: Any = None) -> Work:
        return Work(tensors)

    def broadcast(self, tensors: Any, root: int = 0) -> Work:
        return Work(tensors)

    def barrier(self, *args: Any) -> Work:
        return Work()


class GroupMember:
    """The group of all processes, and the mark of a group that this process is not in."""

    WORLD: ClassVar[ProcessGroup | None] = None
    NON_GROUP_MEMBER: ClassVar[object] = -100


class _MetaGroup(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        return GroupMember.WORLD

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        GroupMember.WORLD = value


class group(metaclass=_MetaGroup):
    """`group.WORLD`, the group of all processes."""


class P2POp:
    """A send or receive for `batch_isend_irecv`."""

    def __init__(
        self, op: Any, tensor: Any, peer: int | None = None, group: Any = None, tag: int = 0, **_: Any
    ) -> None:
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag


# ---------------------------------------------------------------------------------------------- questions


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return GroupMember.WORLD is not None


def is_gloo_available() -> bool:
    return True


def is_nccl_available() -> bool:
    return False


is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    return backend.lower() == "gloo"


def is_torchelastic_launched() -> bool:
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def supports_complex(reduceOp: Any) -> bool:
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def get_default_backend_for_device(device: Any) -> str:
    kind = device.type if isinstance(device, flambeau.device) else str(device).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"[get_default_backend_for_device] expected a device with a backend, got {device}")
    return Backend.default_device_backend_map[kind]


# ---------------------------------------------------------------------------------------------- groups


def _get_default_group() -> ProcessGroup:
    if GroupMember.WORLD is None:
        raise ValueError("[distributed] expected init_process_group to have been called, got no default group")
    return GroupMember.WORLD


def _group(group: Any) -> ProcessGroup | None:
    """The group meant by an argument; None when this process is not in it."""
    if group is None:
        return _get_default_group()
    return None if group is GroupMember.NON_GROUP_MEMBER else group


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = default_pg_timeout,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Make the group of all processes, which has to be this one alone."""
    if GroupMember.WORLD is not None:
        raise ValueError("[init_process_group] expected to be called once, got a second call")
    name = Backend(backend.rpartition(":")[2] if backend else "gloo")
    if name not in Backend.backend_list:
        raise RuntimeError(f"[init_process_group] expected the backend gloo, got {backend!r}")
    if store is None and (init_method is None or init_method.startswith("env://")):
        if world_size < 0 and "WORLD_SIZE" not in os.environ:
            raise ValueError(
                "[init_process_group] expected WORLD_SIZE in the environment or as world_size, got neither"
            )
        if rank < 0 and "RANK" not in os.environ:
            raise ValueError("[init_process_group] expected RANK in the environment or as rank, got neither")
    size = world_size if world_size >= 0 else int(os.environ.get("WORLD_SIZE", 1))
    place = rank if rank >= 0 else int(os.environ.get("RANK", 0))
    if size != 1:
        raise NotImplementedError(f"[init_process_group] expected world_size 1, got {size}: more is not written yet")
    if place != 0:
        raise ValueError(f"[init_process_group] expected a rank below world_size 1, got {place}")
    GroupMember.WORLD = ProcessGroup("0", [0], name)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    if group is GroupMember.NON_GROUP_MEMBER:
        return
    if group is None or group is GroupMember.WORLD:
        _get_default_group()
        GroupMember.WORLD = None


_count = 0


def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, **options: Any) -> Any:
    """A group of some of the processes: of this one, or one that this process is not in."""
    global _count
    world = _get_default_group()
    ranks = [0] if ranks is None else list(ranks)
    if any(rank != 0 for rank in ranks):
        raise ValueError(f"[new_group] expected ranks below world_size 1, got {ranks}")
    _count += 1
    return ProcessGroup(str(_count), ranks, Backend(backend) if backend else world.name()) if ranks else -100


def new_subgroups(group_size: Any = None, group: Any = None, **options: Any) -> tuple[ProcessGroup, list[ProcessGroup]]:
    own = new_group([0])
    return own, [own]


def get_rank(group: Any = None) -> int:
    """The place of this process in a group, -1 when it is not in it."""
    own = _group(group)
    return -1 if own is None else own.rank()


def get_world_size(group: Any = None) -> int:
    own = _group(group)
    return -1 if own is None else own.size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("[get_node_local_rank] expected LOCAL_RANK in the environment or a fallback, got neither")
    return int(fallback_rank)


def get_backend(group: Any = None) -> Backend:
    own = _group(group)
    if own is None:
        raise ValueError("[get_backend] expected a group of this process, got another")
    return Backend(own.name())


def get_backend_config(group: Any = None) -> str:
    return f"cpu:{get_backend(group)}"


def get_process_group_ranks(group: Any) -> list[int]:
    return list(_group(group)._ranks)  # type: ignore[union-attr]


def get_group_rank(group: Any, global_rank: int) -> int:
    if global_rank not in get_process_group_ranks(group):
        raise ValueError(f"[get_group_rank] expected a rank of the group, got {global_rank}")
    return get_process_group_ranks(group).index(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"[get_global_rank] expected a rank below {len(ranks)}, got {group_rank}")
    return ranks[group_rank]


def get_pg_count() -> int:
    return int(is_initialized())


# ---------------------------------------------------------------------------------------------- collectives
# With one process each is a copy from what it gives to what it receives.


def _done(async_op: bool, result: Any = None) -> Work | None:
    return Work(result) if async_op else None


def _tensor(op: str, *values: Any) -> None:
    for value in values:
        if not isinstance(value, flambeau.Tensor):
            raise TypeError(f"[{op}] expected a tensor, got {type(value).__name__}")


def _alone(op: str, given: Sequence[Any]) -> None:
    if len(given) != 1:
        raise ValueError(f"[{op}] expected a list with one item for each process, got {len(given)} for 1")


def _copy(target: Any, source: Any) -> None:
    with flambeau.no_grad():
        target.copy_(source.reshape(target.shape) if target.shape != source.shape else source)


def _root(op: str, rank: Any, group_rank: Any = None) -> None:
    if rank not in (0, None) or group_rank not in (0, None):
        raise ValueError(f"[{op}] expected rank 0, the only one, got {rank if group_rank is None else group_rank}")


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    _tensor("all_reduce", tensor)
    _group(group)
    return _done(async_op, [tensor])


def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    _tensor("all_reduce_coalesced", *tensors)
    _group(group)
    return _done(async_op, tensors)


def reduce(
    tensor: Any,
    dst: Any = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: Any = None,
) -> Work | None:
    _tensor("reduce", tensor)
    _group(group)
    _root("reduce", dst, group_dst)
    return _done(async_op, [tensor])


def broadcast(
    tensor: Any, src: Any = None, group: Any = None, async_op: bool = False, group_src: Any = None
) -> Work | None:
    _tensor("broadcast", tensor)
    _group(group)
    _root("broadcast", src, group_src)
    return _done(async_op, [tensor])


def all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    _tensor("all_gather", tensor, *tensor_list)
    _group(group)
    _alone("all_gather", tensor_list)
    _copy(tensor_list[0], tensor)
    return _done(async_op, tensor_list)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    _tensor("all_gather_into_tensor", output_tensor, input_tensor)
    _group(group)
    _copy(output_tensor, input_tensor)
    return _done(async_op, output_tensor)


_all_gather_base = all_gather_into_tensor


def all_gather_coalesced(output_lists: Any, input_list: Any, group: Any = None, async_op: bool = False) -> Any:
    for outputs, tensor in zip(output_lists, input_list):
        all_gather(outputs, tensor, group)
    return _done(async_op, output_lists)


def gather(
    tensor: Any,
    gather_list: Any = None,
    dst: Any = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: Any = None,
) -> Work | None:
    _tensor("gather", tensor)
    _group(group)
    _root("gather", dst, group_dst)
    if gather_list is None:
        raise ValueError("[gather] expected gather_list on the destination, got None")
    _alone("gather", gather_list)
    _copy(gather_list[0], tensor)
    return _done(async_op, gather_list)


def scatter(
    tensor: Any,
    scatter_list: Any = None,
    src: Any = None,
    group: Any = None,
    async_op: bool = False,
    group_src: Any = None,
) -> Work | None:
    _tensor("scatter", tensor)
    _group(group)
    _root("scatter", src, group_src)
    if scatter_list is None:
        raise ValueError("[scatter] expected scatter_list on the source, got None")
    _alone("scatter", scatter_list)
    _copy(tensor, scatter_list[0])
    return _done(async_op, [tensor])


def reduce_scatter(
    output: Any, input_list: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    _tensor("reduce_scatter", output, *input_list)
    _group(group)
    _alone("reduce_scatter", input_list)
    _copy(output, input_list[0])
    return _done(async_op, output)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    _tensor("reduce_scatter_tensor", output, input)
    _group(group)
    _copy(output, input)
    return _done(async_op, output)


_reduce_scatter_base = reduce_scatter_tensor


def all_to_all(output_tensor_list: Any, input_tensor_list: Any, group: Any = None, async_op: bool = False) -> Any:
    _tensor("all_to_all", *output_tensor_list, *input_tensor_list)
    _group(group)
    _alone("all_to_all", output_tensor_list)
    _alone("all_to_all", input_tensor_list)
    _copy(output_tensor_list[0], input_tensor_list[0])
    return _done(async_op, output_tensor_list)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    _tensor("all_to_all_single", output, input)
    _group(group)
    _copy(output, input)
    return _done(async_op, output)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    _group(group)
    return _done(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    _group(group)


def send(tensor: Any, dst: Any = None, group: Any = None, tag: int = 0, group_dst: Any = None) -> None:
    _group(group)
    raise ValueError("[send] expected another process to send to, got a group of one")


def recv(tensor: Any, src: Any = None, group: Any = None, tag: int = 0, group_src: Any = None) -> int:
    _group(group)
    raise ValueError("[recv] expected another process to receive from, got a group of one")


isend, irecv = send, recv


def batch_isend_irecv(p2p_op_list: Any) -> list[Work]:
    return [item.op(item.tensor, item.peer) for item in p2p_op_list]


# ---------------------------------------------------------------------------------------------- objects


def _copied(value: Any) -> Any:
    """Objects arrive pickled, so that the receiver gets one of its own."""
    import pickle

    return pickle.loads(pickle.dumps(value))


def all_gather_object(object_list: Any, obj: Any, group: Any = None) -> None:
    _group(group)
    _alone("all_gather_object", object_list)
    object_list[0] = _copied(obj)


def gather_object(
    obj: Any, object_gather_list: Any = None, dst: Any = None, group: Any = None, group_dst: Any = None
) -> None:
    _group(group)
    _root("gather_object", dst, group_dst)
    if object_gather_list is None:
        raise ValueError("[gather_object] expected object_gather_list on the destination, got None")
    _alone("gather_object", object_gather_list)
    object_gather_list[0] = _copied(obj)


def broadcast_object_list(
    object_list: Any,
    src: Any = None,
    group: Any = None,
    device: Any = None,
    group_src: Any = None,
    use_batch: bool = False,
) -> None:
    _group(group)
    _root("broadcast_object_list", src, group_src)


def scatter_object_list(
    scatter_object_output_list: Any,
    scatter_object_input_list: Any = None,
    src: Any = None,
    group: Any = None,
    group_src: Any = None,
) -> None:
    _group(group)
    _root("scatter_object_list", src, group_src)
    _alone("scatter_object_list", scatter_object_input_list)
    scatter_object_output_list[0] = _copied(scatter_object_input_list[0])
