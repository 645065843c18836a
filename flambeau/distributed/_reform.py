"""`reform`: a new world of the processes that are left after one was lost, without restarting any.

    try:
        step()
    except dist.DistBackendError:
        dist.reform()                      # rank and world size are new; other groups are gone
        ddp = DistributedDataParallel(ddp.module)
        step()                             # the interrupted step again

A collective ends on all survivors or on none: the memory through which it goes outlives the lost process. So states of the survivors are
those before or after the same step, and nothing is loaded. The survivors meet in the memory of the old group; no store is needed, and
the first of them serves a new one. Over an MPI that can go on without a process (ULFM: Open MPI's `mpirun --with-ft ulfm`) they meet in
a communicator that it makes of those that are left.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed import _groups, _watchdog
from flambeau.distributed._process_group import ProcessGroup
from flambeau.distributed._stores import PrefixStore, TCPStore, milliseconds

__all__ = ["reform"]


def _serve_store(group: Any, timeout: datetime.timedelta) -> Any:
    """A store for the groups to come, held by the first process."""
    if hasattr(group._native, "store"):
        return group._native.store()
    port = flambeau.zeros(1, dtype=flambeau.int64)
    server = None
    if group.rank() == 0:
        server = TCPStore("127.0.0.1", 0, group.size(), True, timeout, wait_for_workers=False)
        port[0] = server.port
    if group.size() > 1:
        group._native.broadcast(port, 0, False, milliseconds(timeout))
    if server is not None:
        return server
    patience = min(timeout, datetime.timedelta(seconds=5))  # the server may be lost before it is reached
    store = TCPStore("127.0.0.1", int(port), group.size(), False, patience, wait_for_workers=False)
    store.set_timeout(timeout)
    return store


def _meet(old: Any, timeout: datetime.timedelta) -> tuple[Any, list[int]]:
    """The native group of those that are left, and their old ranks. When another process is lost meanwhile, they meet again."""
    deadline = time.monotonic() + timeout.total_seconds()
    while True:
        left = max(1, int((deadline - time.monotonic()) * 1000))
        try:
            if hasattr(old._native, "survivors"):
                opened, members = old._native.survivors()
            else:
                segment, members = old._native.succeed(left)
                opened = native.make_group(segment, members.index(old.rank()), old.group_name)
            if len(members) > 1:
                opened.barrier(False, left)
            return opened, members
        except native.DistBackendError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _new_world(old: Any, timeout: datetime.timedelta) -> list[int]:
    """Replaces the world by one of those that are left; returns their ranks in the old one. It has no store yet."""
    opened, members = _meet(old, timeout)
    _watchdog.prepare(opened)
    for group in _groups._world.pg_map:
        group.superseded = True  # modules that reduce over it do so no longer
    _groups.destroy_process_group()
    world = ProcessGroup._open(
        opened, old.group_name, members.index(old.rank()), len(members), old._timeout, old._config, old._config_name,
        old._store, "default_pg",
    )  # fmt: skip
    _groups._world.add(world, old._store, range(len(members)))
    _groups._world.group_count = 1
    _groups.GroupMember.WORLD = _groups._world.default_pg = world
    return members


def reform(timeout: datetime.timedelta | None = None) -> list[int]:
    """Makes the world anew of the processes of the old one that live; returns their old ranks. All of them have to call it.
    Groups beside the world are destroyed."""
    old = _groups._get_default_group()
    if not (hasattr(old._native, "succeed") or (hasattr(old._native, "survivors") and old._native.can_go_on())):
        raise RuntimeError(
            "[reform] expected a group of processes of one host, or one over an MPI with ULFM, got another kind"
        )
    timeout = timeout or min(old._timeout, datetime.timedelta(seconds=60))
    deadline = time.monotonic() + timeout.total_seconds()
    left = list(range(old.size()))
    while True:
        left = [left[rank] for rank in _new_world(_groups._get_default_group(), timeout)]
        world = _groups._get_default_group()
        try:
            store = PrefixStore("default_pg", _serve_store(world, timeout))
        except native.DistError:
            if time.monotonic() > deadline:
                raise
            continue  # another process was lost meanwhile
        world._store = store
        _groups._world.pg_map[world] = (str(world._config_name), store)
        return left
