"""The planners that are used when none is given: nested state dicts by dotted names, replicated tensors written once."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import flambeau
from flambeau.distributed.checkpoint._chunks import chunks_of, overlap, part_at, parts_of
from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict, set_element, unflatten_state_dict
from flambeau.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from flambeau.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from flambeau.distributed.tensor._api import DTensor

__all__ = [
    "DefaultLoadPlanner", "DefaultSavePlanner", "create_default_global_load_plan", "create_default_global_save_plan",
    "create_default_local_load_plan", "create_default_local_save_plan",
]  # fmt: skip


def _flat(state_dict: dict[str, Any], flatten: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    if flatten:
        return flatten_state_dict(state_dict)
    return dict(state_dict), {name: (name,) for name in state_dict}


def _write_items(name: str, value: Any) -> list[WriteItem]:
    """What to write for a value: one item for each part of a tensor that is not empty."""
    if not isinstance(value, flambeau.Tensor):
        return [WriteItem(MetadataIndex(name), WriteItemType.BYTE_IO)]
    items, divided = [], isinstance(value, DTensor) or hasattr(value, "local_shards")
    for chunk, part in parts_of(value):
        if 0 in chunk.sizes and 0 not in value.shape:
            continue
        layout = flambeau.strided, value.requires_grad, flambeau.contiguous_format, False
        data = TensorWriteData(chunk, TensorProperties(part.dtype, *layout), flambeau.Size(value.shape))
        kind = WriteItemType.SHARD if divided else WriteItemType.TENSOR
        items.append(WriteItem(MetadataIndex(name, flambeau.Size(chunk.offsets)), kind, tensor_data=data))
    return items


def create_default_local_save_plan(state_dict: dict[str, Any], is_coordinator: bool = False) -> SavePlan:
    return SavePlan([item for name, value in state_dict.items() for item in _write_items(name, value)])


def _without_duplicates(plans: list[SavePlan], to_lowest_rank: bool) -> list[SavePlan]:
    """Items that several processes have stay with one: values with the first, tensors with the one that writes least so far."""
    owners: dict[MetadataIndex, list[int]] = {}
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            owners.setdefault(item.index, []).append(rank)
            items[item.index] = item
    loads, chosen = [0] * len(plans), {}
    for index, ranks in owners.items():
        size = items[index].tensor_storage_size()
        rank = ranks[0] if size is None or to_lowest_rank else min(ranks, key=lambda r: (loads[r], r))
        loads[rank] += size or 0
        chosen[index] = rank
    return [
        dataclasses.replace(plan, items=[item for item in plan.items if chosen[item.index] == rank])
        for rank, plan in enumerate(plans)
    ]


def create_default_global_save_plan(all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
    """The plans with the number of each chunk in their indices, and the metadata of the whole."""
    entries: dict[str, Any] = {}
    plans = []
    for plan in all_plans:
        items = []
        for item in plan.items:
            if item.tensor_data is None:
                entries[item.index.fqn] = BytesStorageMetadata()
                items.append(item)
                continue
            data = item.tensor_data
            entry = entries.setdefault(item.index.fqn, TensorStorageMetadata(data.properties, data.size, []))
            numbered = dataclasses.replace(item.index, index=len(entry.chunks))
            entry.chunks.append(data.chunk)
            items.append(dataclasses.replace(item, index=numbered))
        plans.append(dataclasses.replace(plan, items=items))
    return plans, Metadata(entries, version="1.0.0")


class DefaultSavePlanner(SavePlanner):
    """Saves a state dict as it is."""

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        self.flatten_state_dict, self.dedup_save_to_lowest_rank = flatten_state_dict, dedup_save_to_lowest_rank
        self.flatten_sharded_tensors = flatten_sharded_tensors
        self.mappings: dict[str, Any] = {}

    def set_up_planner(
        self, state_dict: dict[str, Any], storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        self.state_dict, self.mappings = _flat(state_dict, self.flatten_state_dict)
        self.is_coordinator = is_coordinator

    def create_local_plan(self) -> SavePlan:
        plan = create_default_local_save_plan(self.state_dict, self.is_coordinator)
        self.plan = dataclasses.replace(plan, planner_data=self.mappings) if self.flatten_state_dict else plan
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        plans, metadata = create_default_global_save_plan(
            _without_duplicates(all_plans, self.dedup_save_to_lowest_rank)
        )
        if self.flatten_state_dict:
            paths: dict[str, Any] = {}
            for plan in reversed(plans):
                paths.update(plan.planner_data or {})
            metadata.planner_data = paths
        self.global_plan, self.metadata = plans, metadata
        return plans, metadata

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        self.plan = new_plan
        return new_plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        value = self.state_dict[index.fqn]
        return part_at(value, index.offset) if isinstance(value, flambeau.Tensor) else value

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:
        if write_item.type is WriteItemType.BYTE_IO:
            buffer = io.BytesIO()
            flambeau.save(object, buffer)
            return buffer
        return object

    def resolve_data(self, write_item: WriteItem) -> Any:
        return self.transform_object(write_item, self.lookup_object(write_item.index))


def _read_items(name: str, value: Any, entry: TensorStorageMetadata) -> list[ReadItem]:
    if tuple(value.shape) != tuple(entry.size):
        raise ValueError(
            f"[checkpoint] Size mismatch between saved {tuple(entry.size)} and current: {tuple(value.shape)} for {name}"
        )
    return [
        ReadItem(
            LoadItemType.TENSOR,
            MetadataIndex(name, flambeau.Size(own.offsets)),
            flambeau.Size([at - start for at, start in zip(common[0], own.offsets)]),
            MetadataIndex(name, flambeau.Size(chunk.offsets)),
            flambeau.Size([at - start for at, start in zip(common[0], chunk.offsets)]),
            flambeau.Size(common[1]),
        )
        for own in chunks_of(value)
        for chunk in entry.chunks
        if (common := overlap(own, chunk)) is not None
    ]


def create_default_local_load_plan(state_dict: dict[str, Any], metadata: Metadata, strict: bool = True) -> LoadPlan:
    items: list[ReadItem] = []
    for name, value in state_dict.items():
        entry = metadata.state_dict_metadata.get(name)
        if entry is None:
            if strict:
                raise RuntimeError(f"[checkpoint] Missing key in checkpoint state_dict: {name}.")
        elif isinstance(entry, TensorStorageMetadata) and isinstance(value, flambeau.Tensor):
            items += _read_items(name, value, entry)
        else:
            nowhere, index = flambeau.Size(()), MetadataIndex(name)
            items.append(ReadItem(LoadItemType.BYTE_IO, index, nowhere, index, nowhere, nowhere))
    return LoadPlan(items)


def create_default_global_load_plan(all_plans: list[LoadPlan]) -> list[LoadPlan]:
    return all_plans


class DefaultLoadPlanner(LoadPlanner):
    """Loads a state dict in place. With `allow_partial_load`, names that the checkpoint lacks are left as they are."""

    def __init__(
        self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, allow_partial_load: bool = False
    ) -> None:
        self.flatten_state_dict, self.allow_partial_load = flatten_state_dict, allow_partial_load
        self.flatten_sharded_tensors = flatten_sharded_tensors

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        self.original_state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator
        self.state_dict, self.mappings = _flat(state_dict, self.flatten_state_dict)
        for name, value in self.state_dict.items():
            entry = metadata.state_dict_metadata.get(name) if metadata is not None else None
            if isinstance(entry, TensorStorageMetadata) and not isinstance(value, flambeau.Tensor):
                whole = flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype)
                self.state_dict[name] = whole
                set_element(state_dict, self.mappings[name], whole)

    def create_local_plan(self) -> LoadPlan:
        if self.metadata is None:
            raise AssertionError("[DefaultLoadPlanner] expected the metadata of a checkpoint, got None")
        return create_default_local_load_plan(self.state_dict, self.metadata, not self.allow_partial_load)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        return create_default_global_load_plan(global_plan)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        return new_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        self.state_dict[name] = loaded = flambeau.load(value, map_location="cpu", weights_only=False)
        set_element(self.original_state_dict, self.mappings[name], loaded)

    def lookup_tensor(self, index: MetadataIndex) -> Any:
        return part_at(self.state_dict[index.fqn], index.offset)

    def transform_tensor(self, read_item: ReadItem, tensor: Any) -> Any:
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            tensor = tensor.narrow(dim, start, length)
        return tensor

    def resolve_tensor(self, read_item: ReadItem) -> Any:
        return self.transform_tensor(read_item, self.lookup_tensor(read_item.dest_index))

    def commit_tensor(self, read_item: ReadItem, tensor: Any) -> None: ...


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """Loads everything that a checkpoint holds into an empty state dict, or what lies under some names."""

    def __init__(self, keys: set[str] | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.keys = keys

    def _wanted(self, name: str) -> bool:
        return self.keys is None or any(name == key or name.startswith(f"{key}.") for key in self.keys)

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        if state_dict or metadata is None:
            raise AssertionError("[checkpoint] expected an empty state dict and metadata, got others")
        flat: dict[str, Any] = {}
        for name, entry in metadata.state_dict_metadata.items():
            if self._wanted(name):
                tensor = isinstance(entry, TensorStorageMetadata)
                flat[name] = flambeau.empty(tuple(entry.size), dtype=entry.properties.dtype) if tensor else None
        state_dict.update(unflatten_state_dict(flat, metadata.planner_data or {}))
        super().set_up_planner(state_dict, metadata, is_coordinator)
