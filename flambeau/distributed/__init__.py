"""Process groups. A group has one process so far: programs written for many run alone, and collectives are copies.

    init_process_group("gloo")      # rank 0 of 1, from the environment or the arguments
    all_reduce(tensor)              # leaves the tensor as it is

A world of more than one process is refused. What shards work over processes (`fsdp`, `tensor`, `rpc` …) imports and
fails when it is used.
"""

from __future__ import annotations

from typing import Any

from flambeau.distributed._stores import FileStore, HashStore, PrefixStore, Store, TCPStore
from flambeau.distributed.distributed_c10d import *  # noqa: F403
from flambeau.distributed.distributed_c10d import (
    Backend,
    GroupMember,
    ProcessGroup,
    ReduceOp,
    Work,
    _get_default_group,  # noqa: F401
    group,
    is_available,
    is_initialized,
)

__all__ = [
    "Backend", "FileStore", "GroupMember", "HashStore", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore",
    "Work", "group", "is_available", "is_initialized",
]  # fmt: skip

DistBackendError = DistError = DistNetworkError = DistStoreError = RuntimeError


def __getattr__(name: str) -> Any:
    if name in ("DeviceMesh", "init_device_mesh"):
        from flambeau.distributed import device_mesh

        return getattr(device_mesh, name)
    if name == "distributed_c10d":
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
