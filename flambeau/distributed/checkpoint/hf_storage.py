"""Checkpoints as safetensors files in the layout that model hubs use: `model-00001-of-00002.safetensors` and an index.

Whole tensors are written by one process. With `save_distributed`, each process writes the parts it has into files of its own, with the place
of each part in the file's metadata, so that they can be loaded into any division.
"""

from __future__ import annotations

import dataclasses
import json
import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import flambeau
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, deliver
from flambeau.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from flambeau.distributed.checkpoint.storage import StorageWriter, WriteResult, completed
from flambeau.utils import safetensors

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

_INDEX = "model.safetensors.index.json"
_PLACES = "DCP_SHARDING_INFO"


def file_name(number: int, count: int) -> str:
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def write_index(folder: Path, sizes: dict[str, int], files: dict[str, str]) -> None:
    """Says in which file each tensor is, as model hubs expect it."""
    index = {"metadata": {"total_size": sum(sizes[fqn] for fqn in files)}, "weight_map": files}
    temporary = folder / f"{_INDEX}.tmp"
    temporary.write_text(json.dumps(index, indent=2))
    temporary.rename(folder / _INDEX)


class HuggingFaceStorageWriter(StorageWriter):
    """Writes safetensors files to a folder. `fqn_to_index_mapping` says in which file, from 1, each tensor goes."""

    def __init__(
        self,
        path: Any,
        fqn_to_index_mapping: dict[str, int] | None = None,
        thread_count: int = 1,
        save_distributed: bool = False,
        enable_consolidation: bool = False,
        thread_count_consolidation: int = 1,
        **_: Any,
    ) -> None:
        # Where whole tensors go that are made of the parts; these lie in a folder below.
        self.consolidated: Path | None = Path(path) if enable_consolidation and save_distributed else None
        self.threads = thread_count_consolidation
        self.path, self.save_distributed = self._parts(Path(path)), save_distributed
        self.fqn_to_index_mapping = fqn_to_index_mapping
        # Tensors that all processes have are written by the first, so that each file has one writer.
        self.needs_lowest_rank = not save_distributed

    def _parts(self, path: Path) -> Path:
        return path if self.consolidated is None else path / "sharded"

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id is not None:
            if self.consolidated is not None:
                self.consolidated = Path(checkpoint_id)
            self.path = self._parts(Path(checkpoint_id))

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self.path.mkdir(parents=True, exist_ok=True)
        for item in plan.items:
            if item.tensor_data is None:
                raise ValueError(
                    f"[HuggingFaceStorageWriter] expected tensors, got another value for {item.index.fqn!r}"
                )
            whole = tuple(item.tensor_data.chunk.sizes) == tuple(item.tensor_data.size)
            if not whole and not self.save_distributed:
                raise ValueError(
                    f"[HuggingFaceStorageWriter] expected whole tensors, got a part of {item.index.fqn!r}: pass "
                    "save_distributed=True"
                )
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [dataclasses.replace(plan, storage_data=rank) for rank, plan in enumerate(plans)]

    def _file_name(self, number: int, rank: int) -> str:
        name = file_name(number, max(self.fqn_to_index_mapping.values()) if self.fqn_to_index_mapping else 1)
        return f"shard-{rank + 1:05d}-{name}" if self.save_distributed else name

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        by_file: dict[str, dict[str, Any]] = {}
        places: dict[str, dict[str, Any]] = {}
        results = []
        for item in plan.items:
            number = self.fqn_to_index_mapping[item.index.fqn] if self.fqn_to_index_mapping else 1
            name = self._file_name(number, plan.storage_data)
            tensor = planner.resolve_data(item).detach().cpu().clone()
            by_file.setdefault(name, {})[item.index.fqn] = tensor
            data: Any = item.tensor_data
            places.setdefault(name, {})[item.index.fqn] = {
                "saved_offsets": list(data.chunk.offsets), "global_shape": list(data.size),
            }  # fmt: skip
            results.append(WriteResult(item.index, tensor.numel() * tensor.element_size(), name))
        for name, tensors in by_file.items():
            extra = {_PLACES: json.dumps(places[name])} if self.save_distributed else {}
            safetensors.save_file(tensors, str(self.path / name), metadata={"format": "pt", **extra})
        return completed(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        written = [result for row in results for result in row]
        if self.consolidated is not None:
            from flambeau.distributed.checkpoint import _consolidate_hf_safetensors as consolidation

            mapping = self.fqn_to_index_mapping or {result.index.fqn: 1 for result in written}
            consolidation.consolidate_safetensors_files(str(self.path), str(self.consolidated), mapping, self.threads)
        if not self.save_distributed:
            sizes = {result.index.fqn: result.size_in_bytes for result in written}
            write_index(self.path, sizes, {result.index.fqn: result.storage_data for result in written})

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(str(self.path))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))


class HuggingFaceStorageReader(FileSystemReader):
    """Reads the safetensors files of a folder, whoever wrote them."""

    def __init__(self, path: Any, thread_count: int = 1, **_: Any) -> None:
        super().__init__(path)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        entries: dict[str, Any] = {}
        storage: dict[MetadataIndex, tuple[str, str]] = {}
        files = sorted(name for name in os.listdir(self.path) if name.endswith(".safetensors"))
        if not files:
            raise RuntimeError(f"[HuggingFaceStorageReader] expected safetensors files, got none in {self.path}")
        for file in files:
            with safetensors.safe_open(str(self.path / file), framework="pt") as opened:
                places = json.loads((opened.metadata() or {}).get(_PLACES, "{}"))
                for name in opened.keys():  # noqa: SIM118  (an opened file, not a dict)
                    tensor = opened.get_tensor(name)
                    place = places.get(name, {})
                    offsets = flambeau.Size(place.get("saved_offsets", [0] * tensor.dim()))
                    size = flambeau.Size(place.get("global_shape", tensor.shape))
                    properties = TensorProperties(tensor.dtype, flambeau.strided)
                    entry = entries.setdefault(name, TensorStorageMetadata(properties, size, []))
                    entry.chunks.append(ChunkStorageMetadata(offsets, flambeau.Size(tensor.shape)))
                    storage[MetadataIndex(name, offsets)] = (file, name)
        return Metadata(entries, storage_data=storage)

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            file, name = self.storage_data[item.storage_index]
            with safetensors.safe_open(str(self.path / file), framework="pt") as opened:
                deliver(item, opened.get_tensor(name), planner)
        return completed(None)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))
