"""Makes whole tensors of the parts that `HuggingFaceStorageWriter` wrote with `save_distributed`, in files as model hubs have them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _groups as groups
from flambeau.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, file_name, write_index
from flambeau.distributed.checkpoint.metadata import Metadata, MetadataIndex
from flambeau.utils import safetensors

__all__ = ["consolidate_safetensors_files", "consolidate_safetensors_files_on_every_rank"]


def consolidate_safetensors_files(
    input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1
) -> None:
    """Writes every tensor of the parts in `input_dir` whole to the file of its number, and an index of them."""
    numbers = sorted(set(fqn_to_index_mapping.values()))
    _consolidate(input_dir, output_dir, fqn_to_index_mapping, numbers, num_threads)
    write_index(Path(output_dir), _sizes(input_dir), _names(fqn_to_index_mapping))


def consolidate_safetensors_files_on_every_rank(
    input_dir: str,
    output_dir: str,
    fqn_to_index_mapping: dict[str, int],
    num_threads: int = 1,
    process_group: Any = None,
) -> None:
    """The same by all processes together: each writes some of the files, the first one the index."""
    numbers = sorted(set(fqn_to_index_mapping.values()))
    rank, size = (
        (groups.get_rank(process_group), groups.get_world_size(process_group)) if groups.is_initialized() else (0, 1)
    )
    _consolidate(input_dir, output_dir, fqn_to_index_mapping, numbers[rank::size], num_threads)
    if rank == 0:
        write_index(Path(output_dir), _sizes(input_dir), _names(fqn_to_index_mapping))
    if size > 1:
        collectives.barrier(process_group)


def _names(mapping: dict[str, int]) -> dict[str, str]:
    count = max(mapping.values())
    return {fqn: file_name(number, count) for fqn, number in mapping.items()}


def _sizes(folder: str) -> dict[str, int]:
    entries = HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata
    return {fqn: entry.size.numel() * entry.properties.dtype.itemsize for fqn, entry in entries.items()}


def _consolidate(source: str, target: str, mapping: dict[str, int], numbers: list[int], threads: int) -> None:
    metadata = HuggingFaceStorageReader(source).read_metadata()
    missing = [fqn for fqn in mapping if fqn not in metadata.state_dict_metadata]
    if missing:
        raise ValueError(f"[consolidate_safetensors_files] expected parts of {missing[0]!r} in {source}, got none")
    os.makedirs(target, exist_ok=True)
    names = _names(mapping)

    def write(number: int) -> None:
        own = [fqn for fqn, at in mapping.items() if at == number]
        tensors = {fqn: _whole(Path(source), metadata, fqn) for fqn in own}
        temporary = Path(target) / f"{names[own[0]]}.tmp"
        safetensors.save_file(tensors, str(temporary), metadata={"format": "pt"})
        temporary.rename(Path(target) / names[own[0]])

    with ThreadPoolExecutor(max(1, threads)) as pool:
        list(pool.map(write, numbers))


def _whole(folder: Path, metadata: Metadata, fqn: str) -> Any:
    entry = metadata.state_dict_metadata[fqn]
    covered = sum(chunk.sizes.numel() for chunk in entry.chunks)
    if covered != entry.size.numel():
        raise ValueError(
            f"[consolidate_safetensors_files] expected {entry.size.numel()} elements of {fqn!r} in {folder}, got {covered}: parts "
            "are missing"
        )
    whole = flambeau.empty(entry.size, dtype=entry.properties.dtype)
    for chunk in entry.chunks:
        file, name = metadata.storage_data[MetadataIndex(fqn, chunk.offsets)]
        place = whole
        for dim, (offset, size) in enumerate(zip(chunk.offsets, chunk.sizes)):
            place = place.narrow(dim, offset, size)
        with safetensors.safe_open(str(folder / file), framework="pt") as opened:
            place.copy_(opened.get_tensor(name))
    return whole
