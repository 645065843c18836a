"""Exchanges of values between the agents of a job, through a store."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]

_ARRIVED, _LAST = "/num_members", "/last_member"


@contextmanager
def store_timeout(store: Any, timeout: float) -> Iterator[None]:
    """The store's timeout in seconds, inside a `with` block."""
    previous = store.timeout
    store.set_timeout(datetime.timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(previous)


def _arrive(store: Any, world_size: int, prefix: str) -> str:
    """Counts this member; the key that the last of them sets."""
    last = f"{prefix}{_LAST}"
    if store.add(f"{prefix}{_ARRIVED}", 1) == world_size:
        store.set(last, "<val_ignored>")
    return last


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> Any:
    """The values of all members. Rank 0, which may hold the store, returns when everybody has read them."""
    values = store.multi_get([f"{prefix}{index}" for index in range(world_size)])
    last = _arrive(store, world_size, f"{prefix}/finished")
    if rank == 0:
        store.wait([last])
    return values


def synchronize(store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300) -> Any:
    """Every member's value, for every member."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Any,
    world_size: int,
    key_prefix: str,
    barrier_timeout: float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Any = None,
    trace_timeout: float = 10,
) -> None:
    """Returns when all members have called it; names those that have not, when it is told the rank."""
    with store_timeout(store, barrier_timeout):
        if rank is not None:
            store.set(f"{key_prefix}{rank}/TRACE", "<val_ignored>")
        last = _arrive(store, world_size, key_prefix)
        try:
            store.wait([last])
        except RuntimeError as error:
            if rank is None:
                raise
            missing = [i for i in range(world_size) if not store.check([f"{key_prefix}{i}/TRACE"])]
            shown = [rank_tracing_decoder(i) if rank_tracing_decoder else str(i) for i in missing]
            raise type(error)(
                f"[barrier] expected {world_size} members within {barrier_timeout} s, missing ranks: [{', '.join(shown)}]"
            ) from error
