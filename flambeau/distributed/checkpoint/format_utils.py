"""Between checkpoints in a folder and single files."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader
from flambeau.distributed.checkpoint.state_dict_loader import _load
from flambeau.distributed.checkpoint.state_dict_saver import _Alone, _save

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


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
