"""Between checkpoints in a folder and single files."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.checkpoint._nested_dict import unflatten_state_dict
from flambeau.distributed.checkpoint.filesystem import FileSystemReader
from flambeau.distributed.checkpoint.metadata import TensorStorageMetadata
from flambeau.distributed.checkpoint.state_dict_loader import _fill
from flambeau.distributed.checkpoint.state_dict_saver import _Alone, _save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def read_whole(path: Any) -> dict[str, Any]:
    """The state dict of a checkpoint with whole tensors."""
    reader = FileSystemReader(path)
    metadata = reader.read_metadata()
    flat: dict[str, Any] = {
        name: flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype)
        if isinstance(entry, TensorStorageMetadata)
        else None
        for name, entry in metadata.state_dict_metadata.items()
    }
    _fill(flat, reader, False)
    return unflatten_state_dict(flat, metadata.planner_data or {})


def dcp_to_torch_save(dcp_checkpoint_dir: Any, torch_save_path: Any) -> None:
    flambeau.save(read_whole(dcp_checkpoint_dir), torch_save_path)


def torch_save_to_dcp(torch_save_path: Any, dcp_checkpoint_dir: Any) -> None:
    state = flambeau.load(torch_save_path, map_location="cpu", weights_only=False)
    _save(state, dcp_checkpoint_dir, None, _Alone())
