"""The process groups of this process: making, asking and ending them.

`GroupMember.WORLD` is the group of all processes. A group's ranks count its members; "global" ranks are those of the world.
"""

from __future__ import annotations

import atexit
import datetime
import io
import os
import socket
import sys
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import flambeau
from flambeau import _distributed as native
from flambeau.distributed import _watchdog
from flambeau.distributed import rendezvous as _rendezvous  # type: ignore[no-redef]
from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._stores import PrefixStore, Store
from flambeau.distributed._types import Backend, BackendConfig
from flambeau.distributed.constants import default_pg_timeout

__all__ = [
    "GroupMember", "destroy_process_group", "get_backend", "get_backend_config", "get_default_backend_for_device",
    "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
    "get_world_size", "group", "init_process_group", "is_available", "is_backend_available", "is_gloo_available",
    "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "is_ucc_available",
    "is_xccl_available", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "shrink_group", "split_group",
    "supports_complex",
]  # fmt: skip


class GroupMember:
    """The group of all processes, and the mark of a group that this process is not in."""

    WORLD: ClassVar[ProcessGroup | None] = None
    NON_GROUP_MEMBER: ClassVar[Any] = -100


class _MetaGroup(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        return GroupMember.WORLD

    @WORLD.setter
    def WORLD(cls, value: ProcessGroup | None) -> None:
        GroupMember.WORLD = value
        _world.default_pg = value


class group(metaclass=_MetaGroup):
    """`group.WORLD`, the group of all processes."""


class _World:
    """All groups that this process is a member of, in tables by group."""

    def __init__(self) -> None:
        self.default_pg: ProcessGroup | None = None
        self.pg_map: dict[Any, tuple[str, Store]] = {}
        self.pg_names: dict[Any, str] = {}
        self.pg_group_ranks: dict[Any, dict[int, int]] = {}
        self.pg_backend_config: dict[Any, str] = {}
        self.pg_to_tag: dict[Any, str] = {}
        self.tags_to_pg: dict[str, list[Any]] = {}
        self.group_count = 0
        self.pg_coalesce_state: dict[Any, list[Any]] = {}

    def add(self, pg: ProcessGroup, store: Store, ranks: Sequence[int]) -> None:
        self.pg_map[pg] = (str(pg._config_name), store)
        self.pg_names[pg] = pg.group_name
        self.pg_group_ranks[pg] = {rank: index for index, rank in enumerate(ranks)}
        self.pg_backend_config[pg] = repr(pg._config)

    def remove(self, pg: ProcessGroup) -> None:
        for table in (self.pg_map, self.pg_names, self.pg_group_ranks, self.pg_backend_config):
            table.pop(pg, None)


_world = _World()


# ---------------------------------------------------------------------------------------------- questions


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return GroupMember.WORLD is not None


def is_gloo_available() -> bool:
    return True


def is_nccl_available() -> bool:
    from flambeau.distributed import _nccl

    return _nccl.is_available()


def is_mpi_available() -> bool:
    from flambeau.distributed import _mpi

    return _mpi.is_available()


def is_ucc_available() -> bool:
    return False


def is_xccl_available() -> bool:
    return False


def is_backend_available(backend: str) -> bool:
    optional = {"nccl": is_nccl_available, "mpi": is_mpi_available}.get(backend.lower())
    return optional() if optional is not None else backend.lower() in ("gloo", "fake", *Backend._plugins)


def is_torchelastic_launched() -> bool:
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def supports_complex(reduceOp: Any) -> bool:
    from flambeau.distributed._types import ReduceOp

    refused = (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
    return reduceOp not in refused


def get_default_backend_for_device(device: Any) -> str:
    kind = device.type if isinstance(device, flambeau.device) else str(device).partition(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"[get_default_backend_for_device] expected a device with a backend, got {device}")
    return Backend.default_device_backend_map[kind]


def _get_default_group() -> ProcessGroup:
    if GroupMember.WORLD is None:
        raise ValueError(
            "[distributed] Default process group has not been initialized, please make sure to call init_process_group."
        )
    return GroupMember.WORLD


def _get_default_store() -> Store:
    return _world.pg_map[_get_default_group()][1]


def _rank_not_in_group(group: Any) -> bool:
    return False if group is None else group == GroupMember.NON_GROUP_MEMBER


def _member_group(group: Any) -> ProcessGroup | None:
    """The group meant by an argument; None when this process is not in it."""
    if group is None:
        return GroupMember.WORLD or _get_default_group()
    if isinstance(group, ProcessGroup):
        return group
    if _rank_not_in_group(group):
        return None
    return _resolve_process_group(group) if isinstance(group, str) else group


def _check_known(group: Any, op: str) -> None:
    if group not in _world.pg_group_ranks:
        raise ValueError(
            f"[{op}] Group {group} is not registered, please create group with torch.distributed.new_group API"
        )


def get_rank(group: Any = None) -> int:
    """The place of this process in a group, -1 when it is not in it."""
    member = _member_group(group)
    return -1 if member is None else member.rank()


def get_world_size(group: Any = None) -> int:
    member = _member_group(group)
    return -1 if member is None else member.size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("[get_node_local_rank] expected LOCAL_RANK in the environment or a fallback, got neither")
    return int(fallback_rank)


def get_backend(group: Any = None) -> Backend:
    member = _member_group(group)
    if not isinstance(member, ProcessGroup):
        raise ValueError("[get_backend] Invalid process group specified")
    return Backend(member._config_name)


def get_backend_config(group: Any = None) -> str:
    member = _member_group(group)
    if member is None:
        raise ValueError("[get_backend_config] Invalid process group specified")
    return repr(member._config)


def get_process_group_ranks(group: Any) -> list[int]:
    member = _member_group(group)
    if member is None:
        raise ValueError("[get_process_group_ranks] expected a group of this process, got another")
    _check_known(member, "get_process_group_ranks")
    return list(_world.pg_group_ranks[member])


def get_group_rank(group: Any, global_rank: int) -> int:
    if group is GroupMember.WORLD:
        return global_rank
    _check_known(group, "get_group_rank")
    ranks = _world.pg_group_ranks[group]
    if global_rank not in ranks:
        raise ValueError(f"[get_group_rank] Global rank {global_rank} is not part of group {group}")
    return ranks[global_rank]


def get_global_rank(group: Any, group_rank: int) -> int:
    if group is GroupMember.WORLD:
        return group_rank
    _check_known(group, "get_global_rank")
    for global_rank, own in _world.pg_group_ranks[group].items():
        if own == group_rank:
            return global_rank
    raise ValueError(f"[get_global_rank] Group rank {group_rank} is not part of group {group}")


def get_pg_count() -> int:
    return _world.group_count


def _get_pg_default_device(group: Any = None) -> Any:
    config = _member_group(group)._config.get_device_backend_map()  # type: ignore[union-attr]
    return flambeau.device("cpu" if "cpu" in config else next(iter(config)))


def _get_process_group_name(pg: ProcessGroup) -> str:
    return _world.pg_names.get(pg, "None")


def _resolve_process_group(group_name: str) -> ProcessGroup:
    for pg, name in _world.pg_names.items():
        if name == group_name:
            return pg
    raise LookupError(f"[distributed] expected the name of a process group, got {group_name!r}")


def _get_group_tag(pg: Any) -> str:
    return _world.pg_to_tag.get(pg, "")


def _find_pg_by_ranks_and_tag(tag: str, ranks: list[int]) -> ProcessGroup | None:
    for pg, members in _world.pg_group_ranks.items():
        if list(members) == list(ranks) and (not tag or _get_group_tag(pg) == tag):
            return pg
    return None


def _get_all_pg_configs() -> list[dict[str, Any]]:
    return [
        {"pg_name": name, "pg_desc": pg.group_desc, "ranks": list(_world.pg_group_ranks[pg])}
        for pg, name in _world.pg_names.items()
    ]


# ---------------------------------------------------------------------------------------------- making groups


def _host() -> str:
    """A name that processes share exactly when they can map each other's memory."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        simulated = os.environ.get("FLAMBEAU_HOST", "")  # processes of one machine may play several hosts
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{os.geteuid()}/{simulated}"
    except OSError:
        return socket.gethostname()


def _open_shared(store: Store, rank: int, size: int, name: str, timeout: datetime.timedelta) -> Any:
    """The native group of processes of one host: memory made by its first rank and mapped by the others."""
    if rank == 0:
        segment, descriptor = native.create_segment(size)
        store.set("segment", f"{os.getpid()} {descriptor}")
    else:
        store.wait(["segment"], timeout)
        pid, descriptor = store.get("segment").decode().split(" ")
        segment = native.open_segment(int(pid), int(descriptor), size)
    transport = native.make_group(segment, rank, name)
    _watchdog.prepare(transport)
    if size > 1:
        transport.barrier(False, int(timeout.total_seconds() * 1000))
    if rank == 0:
        store.delete_key("segment")  # a later group of this name at the same store must not find it
    return transport


def _open_native(store: Store, rank: int, size: int, name: str, timeout: datetime.timedelta) -> Any:
    """The native group: shared memory on one host, Gloo between several."""
    hosts = [_host()]
    if size > 1:
        keys = [f"host{i}" for i in range(size)]
        store.set(keys[rank], hosts[0])
        try:
            store.wait(keys, timeout)
        except native.DistStoreError as error:
            missing = [i for i, key in enumerate(keys) if not store.check([key])]
            limit = int(timeout.total_seconds() * 1000)
            raise native.DistBackendError(
                f"[init_process_group] Timed out waiting {limit}ms for ranks {missing} of group '{name}' to come"
            ) from error
        hosts = [store.get(key).decode() for key in keys]
    if len(set(hosts)) == 1:
        transport = _open_shared(store, rank, size, name, timeout)
    else:
        from flambeau.distributed._hosts import HostsGroup

        own = [i for i, host in enumerate(hosts) if host == hosts[rank]]
        scoped = PrefixStore(f"host{own[0]}", store)
        local = _open_shared(scoped, own.index(rank), len(own), name, timeout)
        transport = HostsGroup(store, rank, size, name, int(timeout.total_seconds() * 1000), hosts, local)
    if size > 1:
        transport.barrier(False, int(timeout.total_seconds() * 1000))
        store.delete_key(f"host{rank}")  # a later group of this name at the same store must not find it
    return transport


def _check_backends(config: BackendConfig) -> None:
    for name in set(config.device_backend_map.values()):
        if name in Backend._plugins or name in ("gloo", "fake", "mpi"):
            continue
        if name == "nccl" and not flambeau.cuda.is_available():
            raise RuntimeError(
                "[init_process_group] Distributed package doesn't have NCCL built in: ProcessGroupNCCL is only supported "
                "with GPUs, no GPUs found"
            )
        if name == "nccl":
            if not is_nccl_available():
                raise RuntimeError(
                    "[init_process_group] Distributed package doesn't have NCCL built in: expected libnccl.so.2, found none "
                    "(pip install nvidia-nccl-cu13, or FLAMBEAU_NCCL=file)"
                )
            continue
        raise RuntimeError(f"[init_process_group] Distributed package doesn't have {name.upper()} built in")


def _make_group(
    name: str,
    ranks: Sequence[int],
    own: int,
    store: Store,
    backend: str | None,
    timeout: datetime.timedelta,
    description: str | None,
    pg_options: Any = None,
) -> ProcessGroup:
    config = BackendConfig(backend)
    _check_backends(config)
    lowered = "undefined" if backend is None else str(backend).lower()
    config_name = lowered
    scoped = PrefixStore(f"group/{name}", store)
    plugin = Backend._plugins.get(lowered)
    if plugin is not None:
        return _plugin_group(plugin, scoped, own, len(ranks), timeout, name, config, config_name, description)
    if lowered == "mpi":
        from flambeau.distributed._mpi import MpiGroup

        opened: Any = MpiGroup(own, len(ranks), name, list(ranks))
    else:
        opened = _open_native(scoped, own, len(ranks), name, timeout)
        if config.device_backend_map.get("cuda") == "nccl":
            from flambeau.distributed._nccl import DeviceGroup, NcclGroup

            opened = DeviceGroup(opened, NcclGroup(scoped, own, len(ranks), name))
    return ProcessGroup._open(opened, name, own, len(ranks), timeout, config, config_name, scoped, description)


def _plugin_group(
    plugin: Any, store: Store, rank: int, size: int, timeout: Any, name: str, config: Any, config_name: str, desc: Any
) -> ProcessGroup:
    make, extended = plugin
    if extended:
        from types import SimpleNamespace

        arguments = SimpleNamespace(store=store, group_rank=rank, group_size=size, timeout=timeout, group_id=name)
        backend = make(arguments, None)
    else:
        backend = make(store, rank, size, timeout)
    backend._adopt(name, rank, size, timeout, config, config_name, store, desc)
    return backend


def _write_whole_lines() -> None:
    """Output of workers that share a pipe: without buffers a line and its end are two writes, between which others write."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.write_through:
            stream.reconfigure(line_buffering=True, write_through=False)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
    _ranks: list[int] | None = None,
) -> None:
    """Make the group of all processes. They meet at `store` or `init_method` ("env://" when neither is given)."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        _write_whole_lines()
    if GroupMember.WORLD is not None:
        raise ValueError("[init_process_group] trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("[init_process_group] Cannot specify both init_method and store.")
    if timeout is None:
        timeout = default_pg_timeout
    if not isinstance(timeout, datetime.timedelta):
        raise TypeError(
            f"[init_process_group] Expected timeout argument to be of type datetime.timedelta, got {timeout!r}"
        )
    if store is not None:
        if world_size <= 0:
            raise AssertionError("[init_process_group] world_size must be positive if using store")
        if rank < 0:
            raise AssertionError("[init_process_group] rank must be non-negative if using store")
    elif backend == "fake":
        rank, world_size = max(rank, 0), max(world_size, 1)
        from flambeau.distributed._stores import HashStore

        store = HashStore()
    elif str(backend).lower() == "mpi":
        from flambeau.distributed import _mpi

        store, rank, world_size = _mpi.world()
    else:
        rendezvous = next(iter(_rendezvous.rendezvous(init_method or "env://", rank, world_size, timeout=timeout)))
        store, rank, world_size = rendezvous
        store.set_timeout(timeout)
    if not 0 <= rank < world_size:
        raise ValueError(f"[init_process_group] expected a rank below world_size {world_size}, got {rank}")
    scoped = PrefixStore("default_pg", store)
    name = group_name or "0"
    if backend == "fake":
        world_size_real = world_size
        pg = ProcessGroup._fake(name, rank, world_size_real, timeout, scoped)
    else:
        pg = _make_group(name, range(world_size), rank, scoped, backend, timeout, "default_pg", pg_options)
    _world.add(pg, scoped, range(world_size))
    _world.group_count = 1
    GroupMember.WORLD = _world.default_pg = pg
    pg.bound_device_id = device_id


def destroy_process_group(group: Any = None) -> None:
    """End a group, or all of them. Who waits for this process in it gets an error at once; nothing is waited for here."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    if group is None or group is GroupMember.WORLD:
        if GroupMember.WORLD is None:
            raise AssertionError("[destroy_process_group] expected an initialized process group, got none")
        for pg in list(_world.pg_map):
            pg._close()
            _world.remove(pg)
        GroupMember.WORLD = _world.default_pg = None
        _rendezvous.end_meetings()
        _world.group_count = 0
        _world.pg_to_tag.clear()
        _world.tags_to_pg.clear()
        return
    if group not in _world.pg_map:
        raise ValueError("[destroy_process_group] Invalid process group specified")
    group._close()
    _world.remove(group)


@atexit.register
def _close_all() -> None:
    for pg in list(_world.pg_map):
        pg._close()


def _new_name(ranks: Sequence[int], local: bool) -> str:
    if local:
        import hashlib

        text = "_".join(map(str, ranks))
        same = sum(list(known) == list(ranks) for known in _world.pg_group_ranks.values())
        return f"{hashlib.sha1(text.encode()).hexdigest()[:16]}_{same}"
    _world.group_count += 1
    return str(_world.group_count - 1)


def new_group(
    ranks: Any = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some processes. All processes of the world call this, or only the members with `use_local_synchronization`."""
    world = _get_default_group()
    size, own = world.size(), world.rank()
    members = list(range(size)) if ranks is None else [int(rank) for rank in ranks]
    if sort_ranks:
        members = sorted(members)
    if len(members) > size:
        raise ValueError(
            f"[new_group] the new group's world size should be less or equal to {size}, got {len(members)}"
        )
    if len(set(members)) != len(members):
        raise ValueError(f"[new_group] expected ranks without duplicates, got {members}")
    for rank in members:
        if not 0 <= rank < size:
            raise ValueError(
                f"[new_group] Rank {rank} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})"
            )
    if timeout is None:
        timeout = world._timeout
    if use_local_synchronization and own not in members:
        return None
    name = _new_name(members, use_local_synchronization)
    if own not in members:
        return GroupMember.NON_GROUP_MEMBER
    if backend is None and world._config_name != "undefined":
        backend = world._config_name
    elif backend is None:
        backend = repr(world._config) if world._explicit else None
    store = _get_default_store()
    if world._is_fake:
        pg = ProcessGroup._fake(name, members.index(own), len(members), timeout, store)
    else:
        pg = _make_group(name, members, members.index(own), store, backend, timeout, group_desc, pg_options)
    _world.add(pg, store, members)
    return pg


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]],
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of the given ranks; the first result is the one of this process."""
    if not ranks_per_subgroup_list:
        raise ValueError("[new_subgroups_by_enumeration] The arg 'ranks_per_subgroup_list' cannot be empty")
    flat = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    for rank in flat:
        if flat.count(rank) > 1:
            raise ValueError(f"[new_subgroups_by_enumeration] Rank {rank} has appeared in subgroups more than once")
    own, groups = None, []
    for ranks in ranks_per_subgroup_list:
        subgroup = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(subgroup)
        if get_rank() in ranks:
            own = subgroup
    return own, groups


def _local_world_size(group: Any) -> int:
    """Processes of a group on one host, taken to be the same on each."""
    return min(int(os.environ.get("LOCAL_WORLD_SIZE", group.size())), group.size())


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """The world in groups of neighbouring ranks."""
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", flambeau.cuda.device_count() or 1))
    if group_size <= 0:
        raise ValueError(f"[new_subgroups] The arg 'group_size' ({group_size}) must be positive")
    size = get_world_size(group)
    if size < group_size:
        raise ValueError(f"[new_subgroups] The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size:
        raise ValueError(f"[new_subgroups] The world size ({size}) must be divisible by 'group_size={group_size}'")
    all_ranks = list(range(size)) if group is None else get_process_group_ranks(group)
    lists = [all_ranks[start : start + group_size] for start in range(0, size, group_size)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: datetime.timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: Any = None,
) -> Any:
    """The part of a group that this process falls into; ranks are those of the parent."""
    if not split_ranks:
        raise ValueError("[split_group] split_ranks cannot be None or empty")
    parent = _member_group(parent_pg)
    if parent is None:
        return None
    globally = get_process_group_ranks(parent)
    own = None
    for ranks in split_ranks:
        if parent.rank() in ranks:
            members = [globally[rank] for rank in sorted(ranks)]
            own = new_group(
                members, timeout, backend, pg_options, use_local_synchronization=True, group_desc=group_desc
            )
    return own


def shrink_group(ranks_to_exclude: list[int], group: Any = None, shrink_flags: int = 0, pg_options: Any = None) -> Any:
    """The group of the processes that are left when some are excluded."""
    member = _member_group(group)
    if member is None:
        return GroupMember.NON_GROUP_MEMBER
    left = [rank for rank in get_process_group_ranks(member) if get_group_rank(member, rank) not in ranks_to_exclude]
    if get_rank() not in left:
        raise RuntimeError("[shrink_group] expected to be called by the ranks that stay, got one that is excluded")
    return new_group(left, use_local_synchronization=True)


def _warn_not_in_group(op: str) -> None:
    rank = -1 if GroupMember.WORLD is None else GroupMember.WORLD.rank()
    warnings.warn(f"Running {op} on global rank {rank} which does not belong to the given group.", stacklevel=3)
