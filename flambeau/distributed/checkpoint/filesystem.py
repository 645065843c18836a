"""Checkpoints in a folder: a data file for each process, and `.metadata`, whose appearance commits the checkpoint.

Data is written under names that no earlier checkpoint in the folder uses, and synced before `.metadata` is renamed into place.
Killed at any time, a save leaves the previous checkpoint as it was.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import flambeau
from flambeau.distributed.checkpoint.metadata import Metadata, _StorageInfo, read_metadata, write_metadata

__all__ = ["FileSystemReader", "FileSystemWriter"]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileSystemWriter:
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

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    def prepare(self) -> int:
        """Makes the folder; returns a number for the data files that no earlier save used."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not self.overwrite and (self.path / ".metadata").exists():
            raise RuntimeError(f"[checkpoint] Checkpoint already exists and {self.overwrite=}: {self.path}")
        numbers = [int(found[1]) for name in os.listdir(self.path) if (found := re.match(r"__\d+_(\d+)\.distcp", name))]
        return max(numbers, default=-1) + 1

    def write(self, rank: int, number: int, items: list[tuple[Any, Any]]) -> dict[Any, _StorageInfo]:
        """Writes (index, value) pairs to this rank's file; returns where each lies."""
        name = f"__{rank}_{number}.distcp"
        places = {}
        with open(self.path / name, "wb") as file:
            for index, value in items:
                start = file.tell()
                buffer = io.BytesIO()
                flambeau.save(value, buffer)
                file.write(buffer.getbuffer())
                places[index] = _StorageInfo(name, start, file.tell() - start)
            file.flush()
            if self.sync_files:
                os.fsync(file.fileno())
        return places

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


class FileSystemReader:
    """Reads a checkpoint from a folder."""

    def __init__(self, path: Any, **_: Any) -> None:
        self.path = Path(path)

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            self.path = Path(checkpoint_id)

    def read_metadata(self) -> Metadata:
        file = self.path / ".metadata"
        if not file.exists():
            raise RuntimeError(f"[checkpoint] expected a checkpoint, got no {file}")
        return read_metadata(file.read_bytes())

    def read(self, place: _StorageInfo, weights_only: bool = True) -> Any:
        with open(self.path / place.relative_path, "rb") as file:
            file.seek(place.offset)
            buffer = io.BytesIO(file.read(place.length))
        return flambeau.load(buffer, map_location="cpu", weights_only=weights_only)
