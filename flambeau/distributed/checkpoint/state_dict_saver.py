"""`save` and `async_save`: every process writes the parts it has, once each."""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from typing import Any

import flambeau
from flambeau.distributed import _groups
from flambeau.distributed._objects import all_gather_object, broadcast_object_list
from flambeau.distributed.checkpoint.default_planner import DefaultSavePlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemWriter
from flambeau.distributed.checkpoint.metadata import Metadata
from flambeau.distributed.checkpoint.planner import SavePlan
from flambeau.distributed.checkpoint.staging import copy_of

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    THREAD = "thread"
    PROCESS = "process"


class AsyncSaveResponse:
    """Two futures: of the copy of the state, and of the save."""

    def __init__(self, staging_completion: Future[Any], upload_completion: Future[Any]) -> None:
        self.staging_completion, self.upload_completion = staging_completion, upload_completion


class CheckpointException(BaseException):
    """What went wrong, by rank: an exception, and its stack where there is one."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Any]:
        return self._failures

    def __str__(self) -> str:
        lines = [f"CheckpointException ranks:{self._failures.keys()}\n"]
        for rank, (error, stack) in self._failures.items():
            lines.append(f"Traceback (most recent call last): (RANK {rank})\n")
            lines += [*traceback.format_list(stack or ()), *traceback.format_exception_only(type(error), error)]
        return "".join(lines)


class _Alone:
    """What stands for a group in a process without one."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1


def _group(process_group: Any, no_dist: bool) -> Any:
    if no_dist or not _groups.is_initialized():
        return _Alone()
    return process_group if process_group is not None else _groups._get_default_group()


def _gather(group: Any, value: Any) -> list[Any]:
    if group.size() == 1:
        return [value]
    everywhere: list[Any] = [None] * group.size()
    all_gather_object(everywhere, value, group)
    return everywhere


def _broadcast(group: Any, value: Any) -> Any:
    if group.size() == 1:
        return value
    box = [value]
    broadcast_object_list(box, group=group, group_src=0)
    return box[0]


def stateful(value: Any) -> bool:
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict") and not isinstance(value, flambeau.Tensor)


def _values(state_dict: dict[str, Any]) -> dict[str, Any]:
    """Objects with a state dict are saved as that."""
    return {key: value.state_dict() if stateful(value) else value for key, value in state_dict.items()}


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Saves a state dict of all processes together; returns when the checkpoint is complete."""
    return _save(_values(state_dict), checkpoint_id, storage_writer, _group(process_group, no_dist), planner)


def _everywhere(group: Any, step: str, action: Callable[[], Any]) -> list[Any]:
    """What an action returns on each process. When it fails somewhere, all processes raise what failed where."""
    own, cause = _tried(action)
    results = _gather(group, own)
    failures = {rank: failure for rank, (_, failure) in enumerate(results) if failure is not None}
    if failures:
        raise CheckpointException(step, failures) from cause
    return [value for value, _ in results]


def _tried(action: Callable[[], Any]) -> tuple[tuple[Any, Any], Exception | None]:
    """What an action returns, or its exception and stack as other processes can read them; and the exception itself."""
    try:
        return (action(), None), None
    except Exception as error:
        told: Exception = error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            told = RuntimeError(f"{type(error).__name__}: {error}")
        return (None, (told, traceback.extract_tb(error.__traceback__))), error


def _on_first(group: Any, step: str, action: Callable[[], Any]) -> Any:
    """What an action returns on the first process, for all."""
    outcome, cause = _tried(action) if group.rank() == 0 else ((None, None), None)
    value, failure = _broadcast(group, outcome)
    if failure is not None:
        raise CheckpointException(step, {0: failure}) from cause
    return value


def _save(state_dict: dict[str, Any], checkpoint_id: Any, writer: Any, group: Any, planner: Any = None) -> Metadata:
    if writer is None:
        if checkpoint_id is None:
            raise RuntimeError("[checkpoint] expected checkpoint_id or storage_writer, got neither")
        writer = FileSystemWriter(checkpoint_id)
    else:
        writer.reset(checkpoint_id)
    planner = planner or DefaultSavePlanner(dedup_save_to_lowest_rank=getattr(writer, "needs_lowest_rank", False))
    first = group.rank() == 0

    def plan() -> SavePlan:
        planner.set_up_planner(state_dict, writer.storage_meta(), first)
        writer.set_up_storage_writer(first)
        return writer.prepare_local_plan(planner.create_local_plan())

    plans = _everywhere(group, "plan", plan)

    def decide() -> tuple[list[SavePlan], Metadata]:
        chosen, metadata = planner.create_global_plan(plans)
        return writer.prepare_global_plan(chosen), metadata

    chosen, metadata = _on_first(group, "plan", decide)

    def write() -> list[Any]:
        future = writer.write_data(planner.finish_plan(chosen[group.rank()]), planner)
        return future.result() if hasattr(future, "result") else future.wait()

    results = _everywhere(group, "write", write)

    def commit() -> Metadata:
        writer.finish(metadata, results)
        return metadata

    return _on_first(group, "finish", commit)


_background: dict[str, Any] = {}  # the group of asynchronous saves, by the name of the group it stands for


def _background_group(process_group: Any, no_dist: bool) -> Any:
    """A group of its own, so that a save in the background does not mix with the collectives of training."""
    group = _group(process_group, no_dist)
    if isinstance(group, _Alone) or group.size() == 1:
        return group
    key = f"{id(group)}"
    if key not in _background or _background[key] not in _groups._world.pg_map:
        ranks = _groups.get_process_group_ranks(group)
        _background[key] = _groups.new_group(ranks, group_desc="checkpoint", use_local_synchronization=True)
    return _background[key]


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Any:
    """Copies the state and saves it in the background; returns a future of the metadata."""
    group = _background_group(process_group, no_dist)
    staged = copy_of(_values(state_dict)) if async_stager is None else async_stager.stage(_values(state_dict))
    future: Future[Any] = Future()

    def run() -> None:
        try:
            state = staged.result() if isinstance(staged, Future) else staged
            future.set_result(_save(state, checkpoint_id, storage_writer, group, planner))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="checkpoint", daemon=False).start()
    if isinstance(staged, Future):
        return AsyncSaveResponse(staged, future)
    return future


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> Metadata:
    return _save(state_dict, None, storage_writer, _group(process_group, no_dist), planner)
