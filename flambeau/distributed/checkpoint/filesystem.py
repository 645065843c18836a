"""Checkpoints in a folder: a data file for each process, and `.metadata`, whose appearance commits the checkpoint.

Data is written under names that no earlier checkpoint in the folder uses, and synced before `.metadata` is renamed into place.
Killed at any time, a save leaves the previous checkpoint as it was.
"""

from __future__ import annotations

import dataclasses
import io
import mmap
import os
import re
import uuid
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import flambeau
from flambeau.distributed.checkpoint.metadata import (
    Metadata,
    StorageMeta,
    _StorageInfo,
    read_metadata,
    write_metadata,
)
from flambeau.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    WriteItem,
    WriteItemType,
)
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult, completed
from flambeau.serialization import _load_in_place

__all__ = ["FileSystemReader", "FileSystemWriter"]


_ALIGNMENT = 64  # as records of the archives inside are


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileSystemWriter(StorageWriter):
    """Writes a checkpoint to a folder."""

    def __init__(
        self,
        path: Any,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        **_: Any,
    ) -> None:
        self.path, self.sync_files, self.overwrite = Path(path), sync_files, overwrite
        self.save_id = str(uuid.uuid4())

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)
        self.save_id = str(uuid.uuid4())

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / ".metadata").exists():
            raise RuntimeError(f"[checkpoint] Checkpoint already exists and {self.overwrite=}: {self.path}")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Gives each process the name of its file, with a number that no earlier save in the folder used."""
        numbers = [int(match[1]) for name in os.listdir(self.path) if (match := re.match(r"__\d+_(\d+)\.distcp", name))]
        number = max(numbers, default=-1) + 1
        return [dataclasses.replace(plan, storage_data=f"__{rank}_{number}.distcp") for rank, plan in enumerate(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        name = plan.storage_data
        results = []
        with open(self.path / name, "wb") as file:
            for item in plan.items:
                # Aligned, so that tensors can be read where they lie.
                file.write(bytes(-file.tell() % _ALIGNMENT))
                start = file.tell()
                file.write(self._bytes(item, planner.resolve_data(item)))
                size = file.tell() - start
                results.append(WriteResult(item.index, size, _StorageInfo(name, start, size)))
            file.flush()
            if self.sync_files:
                os.fsync(file.fileno())
        return completed(results)

    @staticmethod
    def _bytes(item: WriteItem, data: Any) -> Any:
        if item.type is WriteItemType.BYTE_IO:
            return data.getbuffer()
        buffer = io.BytesIO()
        flambeau.save(data.detach().cpu().clone(), buffer)  # a clone: a view would bring its whole storage
        return buffer.getbuffer()

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        metadata.storage_data = {result.index: result.storage_data for row in results for result in row}
        metadata.storage_meta = self.storage_meta()
        self.commit(metadata)

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(str(self.path), self.save_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike)) and "://" not in str(checkpoint_id)

    def commit(self, metadata: Metadata) -> None:
        temporary = self.path / ".metadata.tmp"
        with open(temporary, "wb") as file:
            file.write(write_metadata(metadata))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path / ".metadata")
        if self.sync_files:
            _sync(self.path)
        used = {place.relative_path for place in metadata.storage_data.values()}
        for name in os.listdir(self.path):
            if name.endswith(".distcp") and name not in used:
                os.unlink(self.path / name)


class FileSystemReader(StorageReader):
    """Reads a checkpoint from a folder."""

    def __init__(self, path: Any, **_: Any) -> None:
        self.path = Path(path)
        self.storage_data: dict[Any, Any] = {}  # where a chunk lies: a _StorageInfo

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    @property
    def checkpoint_id(self) -> Any:
        return self.path

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        file = self.path / ".metadata"
        if not file.exists():
            raise RuntimeError(f"[checkpoint] expected a checkpoint, got no {file}")
        return read_metadata(file.read_bytes())

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads each saved chunk once, whatever parts of it are wanted."""
        by_chunk: dict[Any, list[ReadItem]] = {}
        for item in plan.items:
            by_chunk.setdefault(item.storage_index, []).append(item)
        mapped: dict[str, memoryview] = {}
        for index, items in by_chunk.items():
            raw = self._raw(self.storage_data[index], mapped)
            if items[0].type is LoadItemType.BYTE_IO:
                planner.load_bytes(items[0], io.BytesIO(raw))
                continue
            saved = _read(raw)
            saved = saved._local_tensor if hasattr(saved, "_local_tensor") else saved
            for item in items:
                deliver(item, saved, planner)
        return completed(None)

    def _raw(self, place: _StorageInfo, mapped: dict[str, memoryview]) -> memoryview:
        """The bytes of a chunk in its mapped file: only what is copied out of a chunk is read from the disk."""
        if place.relative_path not in mapped:
            with open(self.path / place.relative_path, "rb") as file:
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            mapped[place.relative_path] = memoryview(mapping)
        return mapped[place.relative_path][place.offset : place.offset + place.length]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return FileSystemWriter.validate_checkpoint_id(checkpoint_id)


def _read(raw: memoryview) -> Any:
    """A saved tensor; in place where it is an archive, which other formats are not."""
    if bytes(raw[:4]) == b"PK\x03\x04":
        return _load_in_place(raw)
    return flambeau.load(io.BytesIO(raw), map_location="cpu", weights_only=True)


def deliver(item: ReadItem, saved: Any, planner: LoadPlanner) -> None:
    """Copies the wanted part of a saved chunk to where the planner wants it."""
    for dim, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
        saved = saved.narrow(dim, start, length)
    target = planner.resolve_tensor(item).detach()
    if tuple(target.shape) != tuple(saved.shape):
        raise AssertionError(
            f"[checkpoint] expected {tuple(saved.shape)} from the planner for {item.storage_index.fqn}, got "
            f"{tuple(target.shape)}"
        )
    with flambeau.no_grad():
        target.copy_(saved)
    planner.commit_tensor(item, target)
