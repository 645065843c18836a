"""`load`: fills the tensors of a state dict from a checkpoint, whatever division either has."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader
from flambeau.distributed.checkpoint.planner import LoadPlan
from flambeau.distributed.checkpoint.state_dict_saver import _everywhere, _group, _on_first, stateful

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
    _load(values, storage_reader, planner or DefaultLoadPlanner(), _group(process_group, no_dist))
    for key, value in state_dict.items():
        if stateful(value):
            value.load_state_dict(values[key])
        else:
            state_dict[key] = values[key]


def _load(values: dict[str, Any], reader: Any, planner: Any, group: Any) -> None:
    first = group.rank() == 0

    def plan() -> LoadPlan:
        metadata = reader.read_metadata()
        planner.set_up_planner(values, metadata, first)
        reader.set_up_storage_reader(metadata, first)
        return reader.prepare_local_plan(planner.create_local_plan())

    plans = _everywhere(group, "plan", plan)
    chosen = _on_first(group, "plan", lambda: reader.prepare_global_plan(planner.create_global_plan(plans)))

    def read() -> None:
        reader.read_data(planner.finish_plan(chosen[group.rank()]), planner)

    _everywhere(group, "read", read)


def _load_state_dict_from_keys(
    keys: set[str] | str | None = None,
    *,
    checkpoint_id: Any = None,
    storage_reader: Any = None,
    process_group: Any = None,
) -> dict[str, Any]:
    """What a checkpoint holds under some keys, or all of it: whole tensors, in dicts and lists as they were saved."""
    import flambeau
    from flambeau.distributed.checkpoint._nested_dict import unflatten_state_dict
    from flambeau.distributed.checkpoint.metadata import TensorStorageMetadata

    reader = storage_reader or FileSystemReader(checkpoint_id)
    metadata = reader.read_metadata()
    wanted = {keys} if isinstance(keys, str) else keys
    chosen = {
        name: entry
        for name, entry in metadata.state_dict_metadata.items()
        if wanted is None or name in wanted or any(name.startswith(f"{key}.") for key in wanted)
    }
    flat: dict[str, Any] = {
        name: flambeau.empty(entry.size, dtype=entry.properties.dtype)
        if isinstance(entry, TensorStorageMetadata)
        else None
        for name, entry in chosen.items()
    }
    _load(flat, reader, DefaultLoadPlanner(flatten_state_dict=False), _group(process_group, False))
    paths = metadata.planner_data or {}
    return unflatten_state_dict(flat, {name: paths.get(name, (name,)) for name in flat})


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    load(state_dict, storage_reader=storage_reader, process_group=process_group, no_dist=no_dist, planner=planner)
