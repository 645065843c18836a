"""Functions whose result, or error, is shared by all processes of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from flambeau.distributed import _groups, _objects

__all__ = ["SyncPayload", "all_gather", "broadcast"]

T = TypeVar("T")


class SyncPayload(Generic[T]):
    """What a process hands to the others: its result, or that it failed."""

    def __init__(self, stage_name: str | None, success: bool, payload: T, exception: Exception | None = None) -> None:
        self.stage_name, self.success, self.payload, self.exception = stage_name, success, payload, exception


def _attempt(data_or_fn: T | Callable[[], T], success: bool, stage_name: str | None) -> SyncPayload[Any]:
    if not callable(data_or_fn):
        return SyncPayload(stage_name, success, data_or_fn)
    try:
        return SyncPayload(stage_name, success, data_or_fn())
    except Exception as error:
        return SyncPayload(stage_name, False, None, error)


def broadcast(
    data_or_fn: Any, *, success: bool = True, stage_name: str | None = None, rank: int = 0, pg: Any = None
) -> Any:
    """The data of one process, or what a function returns there; an error is raised on all."""
    if not success and data_or_fn is not None:
        raise AssertionError("[broadcast] Data or Function is expected to be None if not successful")
    payload: Any = None
    if pg is None and not _groups.is_initialized():
        payload = _attempt(data_or_fn, success, stage_name)
    else:
        own = _groups.get_rank(pg) == rank
        box = [_attempt(data_or_fn, success, stage_name) if own else None]
        _objects.broadcast_object_list(box, group=pg, group_src=rank)
        payload = box[0]
    if payload.exception is not None:
        raise RuntimeError(f"[{stage_name or 'broadcast'}] failed on rank {rank}: {payload.exception}") from (
            payload.exception
        )
    return payload.payload


def all_gather(data_or_fn: Any, stage_name: str | None = None, pg: Any = None) -> list[Any]:
    """The data of all processes, or what a function returns on each; errors are raised on all."""
    own = _attempt(data_or_fn, True, stage_name)
    everywhere: list[Any] = [own]
    if pg is not None or _groups.is_initialized():
        everywhere = [None] * _groups.get_world_size(pg)
        _objects.all_gather_object(everywhere, own, pg)
    failures = {rank: one.exception for rank, one in enumerate(everywhere) if one.exception is not None}
    if failures:
        raise RuntimeError(f"[{stage_name or 'all_gather'}] failed on ranks {failures}")
    return [one.payload for one in everywhere]
