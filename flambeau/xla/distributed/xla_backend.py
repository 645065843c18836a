"""`init_process_group("xla", init_method="xla://")`: the group of the one process, which is the host's own."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from flambeau.distributed import Backend, HashStore, ProcessGroup
from flambeau.distributed._groups import _open_native
from flambeau.distributed.rendezvous import register_rendezvous_handler

__all__: list[str] = []


def _meet(url: str, rank: int = -1, world_size: int = -1, **_: Any) -> Iterator[tuple[Any, int, int]]:
    if rank > 0 or world_size > 1:
        raise ValueError(f"[xla://] expected one process, got rank {rank} of {world_size}")
    yield HashStore(), 0, 1


def _group(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    group = ProcessGroup.__new__(ProcessGroup)
    group._native = _open_native(store, rank, size, "xla", timeout)
    return group


Backend.register_backend("xla", _group, devices=["cpu", "xla"])
register_rendezvous_handler("xla", _meet)
