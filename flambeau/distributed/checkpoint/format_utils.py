"""Between checkpoints in a folder and single files."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _groups
from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, _EmptyStateDictLoadPlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, deliver
from flambeau.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from flambeau.distributed.checkpoint.state_dict_loader import _load
from flambeau.distributed.checkpoint.state_dict_saver import _Alone, _save
from flambeau.distributed.checkpoint.storage import StorageReader, completed

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]


class BroadcastingTorchSaveReader(StorageReader):
    """Reads a file of `save` on one process, and sends its tensors to all; with `DynamicMetaLoadPlanner`."""

    def __init__(self, checkpoint_id: Any = None, coordinator_rank: int = 0) -> None:
        self.checkpoint_id, self.coordinator_rank = checkpoint_id, coordinator_rank

    def reset(self, checkpoint_id: Any = None) -> None:
        self.checkpoint_id = self.checkpoint_id if checkpoint_id is None else checkpoint_id

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Nothing: the planner makes it of the state dict."""
        return Metadata(state_dict_metadata={})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self.is_coordinator = is_coordinator
        if is_coordinator and _groups.is_initialized() and _groups.get_rank() != self.coordinator_rank:
            raise AssertionError(
                f"[checkpoint] expected rank {self.coordinator_rank} to coordinate, got rank {_groups.get_rank()}"
            )

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        entries = planner.metadata.state_dict_metadata
        saved: dict[str, Any] = {}
        if self.is_coordinator:
            path = os.fspath(self.checkpoint_id)
            saved, _ = flatten_state_dict(flambeau.load(path, map_location="cpu", weights_only=False))
        items: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            items.setdefault(item.storage_index.fqn, []).append(item)
        for name, entry in entries.items():
            whole = self._whole(name, entry, saved)
            for item in items.get(name, ()):
                deliver(item, whole, planner)
        return completed(None)

    def _whole(self, name: str, entry: TensorStorageMetadata, saved: dict[str, Any]) -> Any:
        """A tensor of the file, on all processes."""
        if self.is_coordinator:
            whole = saved[name].detach().to(entry.properties.dtype).contiguous()
        else:
            whole = flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype)
        if _groups.is_initialized():
            collectives.broadcast(whole, self.coordinator_rank)
        return whole

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return os.path.isfile(checkpoint_id)


class DynamicMetaLoadPlanner(DefaultLoadPlanner):
    """Takes from the state dict what there is to load, for files that say nothing about themselves; tensors only."""

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        super().set_up_planner(state_dict, metadata, is_coordinator)
        entries: dict[str, Any] = {}
        for name, value in self.state_dict.items():
            if not isinstance(value, flambeau.Tensor):
                raise RuntimeError(f"[checkpoint] Only Tensor loading is supported, got {type(value)} for {name}")
            size = flambeau.Size(value.shape)
            chunk = ChunkStorageMetadata(flambeau.Size([0] * len(size)), size)
            entries[name] = TensorStorageMetadata(TensorProperties(dtype=value.dtype), size, [chunk])
        self.metadata = Metadata(state_dict_metadata=entries)


def read_whole(path: Any) -> dict[str, Any]:
    """The state dict of a checkpoint with whole tensors."""
    state: dict[str, Any] = {}
    _load(state, FileSystemReader(path), _EmptyStateDictLoadPlanner(), _Alone())
    return state


def dcp_to_torch_save(dcp_checkpoint_dir: Any, torch_save_path: Any) -> None:
    flambeau.save(read_whole(dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(torch_save_path: Any, dcp_checkpoint_dir: Any) -> None:
    state = flambeau.load(torch_save_path, map_location="cpu", weights_only=False)
    _save(state, dcp_checkpoint_dir, None, _Alone())
