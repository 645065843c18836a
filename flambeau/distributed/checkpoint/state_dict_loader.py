"""`load`: fills the tensors of a state dict from a checkpoint, whatever division either has."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.checkpoint._chunks import chunk_of, copy_overlap, local_of, overlaps
from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict, set_element
from flambeau.distributed.checkpoint.filesystem import FileSystemReader
from flambeau.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from flambeau.distributed.checkpoint.state_dict_saver import CheckpointException, _gather, _group, stateful

__all__ = ["load", "load_state_dict"]


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: Any = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Loads in place: tensors are written where they are, other values replaced, objects with a state dict load theirs."""
    if storage_reader is None:
        if checkpoint_id is None:
            raise RuntimeError("[checkpoint] expected checkpoint_id or storage_reader, got neither")
        storage_reader = FileSystemReader(checkpoint_id)
    else:
        storage_reader.reset(checkpoint_id)
    values = {key: value.state_dict() if stateful(value) else value for key, value in state_dict.items()}
    group = _group(process_group, no_dist)
    try:
        _fill(values, storage_reader, bool(getattr(planner, "allow_partial_load", False)))
        error: Any = None
    except Exception as caught:
        error = caught
    failures = {rank: one for rank, one in enumerate(_gather(group, error)) if one is not None}
    if failures:
        raise CheckpointException("load", failures) from error
    for key, value in state_dict.items():
        if stateful(value):
            value.load_state_dict(values[key])
        else:
            state_dict[key] = values[key]


def _fill(values: dict[str, Any], reader: Any, partial: bool) -> None:
    metadata = reader.read_metadata()
    flat, paths = flatten_state_dict(values)
    cache: dict[MetadataIndex, Any] = {}
    with flambeau.no_grad():
        for name, value in flat.items():
            entry = metadata.state_dict_metadata.get(name)
            if entry is None:
                if partial:
                    continue
                raise RuntimeError(f"[checkpoint] Missing key in checkpoint state_dict: {name}.")
            if isinstance(value, flambeau.Tensor) and isinstance(entry, TensorStorageMetadata):
                _fill_tensor(name, value, entry, metadata, reader, cache)
            elif isinstance(entry, TensorStorageMetadata):
                whole = flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype)
                _fill_tensor(name, whole, entry, metadata, reader, cache)
                set_element(values, paths[name], whole)
            else:
                place = metadata.storage_data[MetadataIndex(name)]
                set_element(values, paths[name], reader.read(place, weights_only=False))


def _fill_tensor(name: str, value: Any, entry: Any, metadata: Metadata, reader: Any, cache: dict[Any, Any]) -> None:
    if tuple(value.shape) != tuple(entry.size):
        raise ValueError(
            f"[checkpoint] Size mismatch between saved {tuple(entry.size)} and current: {tuple(value.shape)} for {name}"
        )
    own, target = chunk_of(value), local_of(value)
    if target.numel() == 0:
        return
    for chunk in entry.chunks:
        if not overlaps(own, chunk):
            continue
        index = MetadataIndex(name, flambeau.Size(chunk.offsets))
        saved = reader.read(metadata.storage_data[index])
        saved = saved._local_tensor if hasattr(saved, "_local_tensor") else saved
        copy_overlap(target, own.offsets, saved.reshape(tuple(chunk.sizes)), chunk.offsets)


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    load(state_dict, storage_reader=storage_reader, process_group=process_group, no_dist=no_dist, planner=planner)
