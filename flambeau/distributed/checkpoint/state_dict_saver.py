"""`save` and `async_save`: every process writes the parts it has, once each."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from enum import Enum
from typing import Any

import flambeau
from flambeau.distributed import _groups
from flambeau.distributed._objects import all_gather_object, broadcast_object_list
from flambeau.distributed.checkpoint._chunks import chunk_of, local_of
from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict
from flambeau.distributed.checkpoint.filesystem import FileSystemWriter
from flambeau.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from flambeau.distributed.tensor._api import DTensor

__all__ = ["AsyncCheckpointerType", "AsyncSaveResponse", "async_save", "save", "save_state_dict"]


class AsyncCheckpointerType(Enum):
    THREAD = "thread"
    PROCESS = "process"


class AsyncSaveResponse:
    """Two futures: of the copy of the state, and of the save."""

    def __init__(self, staging_completion: Future[Any], upload_completion: Future[Any]) -> None:
        self.staging_completion, self.upload_completion = staging_completion, upload_completion


class CheckpointException(BaseException):
    """What went wrong, by rank."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Any]:
        return self._failures

    def __str__(self) -> str:
        return f"CheckpointException ranks:{self._failures.keys()}\n" + "\n".join(
            f"{k}: {v}" for k, v in self._failures.items()
        )


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


def _describe(flat: dict[str, Any]) -> dict[str, Any]:
    """What this process could write: the chunk of each tensor, None for other values."""
    plan: dict[str, Any] = {}
    for name, value in flat.items():
        if isinstance(value, flambeau.Tensor):
            chunk = chunk_of(value)
            plan[name] = (tuple(chunk.offsets), tuple(chunk.sizes), tuple(value.shape), str(value.dtype))
        else:
            plan[name] = None
    return plan


def _assign(plans: list[dict[str, Any]]) -> dict[tuple[str, Any], int]:
    """Which rank writes what: the first that has it, with the tensors that all have spread over the ranks."""
    owners: dict[tuple[str, Any], list[int]] = {}
    for rank, plan in enumerate(plans):
        for name, chunk in plan.items():
            empty = chunk is not None and 0 in chunk[1] and 0 not in chunk[2]
            if not empty:
                owners.setdefault((name, None if chunk is None else chunk[0]), []).append(rank)
    loads = [0] * len(plans)
    chosen = {}
    for key, ranks in owners.items():
        name, offset = key
        if offset is None:
            chosen[key] = ranks[0]
            continue
        size = 1
        for length in plans[ranks[0]][name][1]:
            size *= length
        rank = min(ranks, key=lambda r: (loads[r], r))
        loads[rank] += size
        chosen[key] = rank
    return chosen


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
    return _save(_values(state_dict), checkpoint_id, storage_writer, _group(process_group, no_dist))


def _save(state_dict: dict[str, Any], checkpoint_id: Any, writer: Any, group: Any) -> Metadata:
    if writer is None:
        if checkpoint_id is None:
            raise RuntimeError("[checkpoint] expected checkpoint_id or storage_writer, got neither")
        writer = FileSystemWriter(checkpoint_id)
    else:
        writer.reset(checkpoint_id)
    flat, paths = flatten_state_dict(state_dict)
    failure: Any = None
    number = None
    if group.rank() == 0:
        try:
            number = writer.prepare()
        except Exception as error:
            failure = error
    number, failure = _broadcast(group, (number, failure))
    if failure is not None:
        raise CheckpointException("prepare", {0: failure})
    plans = _gather(group, _describe(flat))
    owners = _assign(plans)
    items = []
    for name, value in flat.items():
        offset = tuple(chunk_of(value).offsets) if isinstance(value, flambeau.Tensor) else None
        if owners.get((name, offset)) == group.rank():
            index = MetadataIndex(name, None if offset is None else flambeau.Size(offset))
            items.append((index, local_of(value).cpu().clone() if offset is not None else value))
    try:
        places, error = writer.write(group.rank(), number, items), None
    except Exception as caught:
        places, error = {}, caught
    results = _gather(group, (places, error, paths, {n: _geometry(v) for n, v in flat.items()}))
    failures = {rank: error for rank, (_, error, _, _) in enumerate(results) if error is not None}
    if failures:
        raise CheckpointException("write", failures)
    metadata = _join(results, plans)
    metadata.storage_meta = StorageMeta(str(writer.path), str(uuid.uuid4()))
    if group.rank() == 0:
        writer.commit(metadata)
    _broadcast(group, None)
    return metadata


def _geometry(value: Any) -> Any:
    if not isinstance(value, flambeau.Tensor):
        return BytesStorageMetadata()
    local = value._local_tensor if isinstance(value, DTensor) else value
    properties = TensorProperties(local.dtype, flambeau.strided, value.requires_grad, flambeau.contiguous_format, False)
    return TensorStorageMetadata(properties, flambeau.Size(value.shape), [])


def _join(results: list[Any], plans: list[dict[str, Any]]) -> Metadata:
    """The metadata of the whole from those of the ranks."""
    entries: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    storage: dict[MetadataIndex, Any] = {}
    for (places, _, own_paths, geometry), plan in zip(results, plans):
        for name, entry in geometry.items():
            entries.setdefault(name, entry)
            paths.setdefault(name, own_paths[name])
        for index, place in places.items():
            entry = entries[index.fqn]
            number = None
            if isinstance(entry, TensorStorageMetadata):
                offsets, sizes = plan[index.fqn][:2]
                from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata

                number = len(entry.chunks)
                entry.chunks.append(ChunkStorageMetadata(flambeau.Size(offsets), flambeau.Size(sizes)))
            storage[MetadataIndex(index.fqn, index.offset, number)] = place
    return Metadata(entries, paths, storage, None, "1.0.0")


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


def _staged(value: Any) -> Any:
    """A copy of the state that training does not change."""
    if isinstance(value, DTensor):
        return DTensor(value._local_tensor.detach().cpu().clone(), value._spec)
    if isinstance(value, flambeau.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: _staged(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_staged(item) for item in value)
    return value


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
    staged = _staged(_values(state_dict))
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(_save(staged, checkpoint_id, storage_writer, group))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="checkpoint", daemon=False).start()
    if async_stager is not None:
        copied: Future[Any] = Future()
        copied.set_result(None)
        return AsyncSaveResponse(copied, future)
    return future


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> Metadata:
    return _save(state_dict, None, storage_writer, _group(process_group, no_dist))
