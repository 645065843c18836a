"""Datasets, samplers and the loader that makes batches of them."""

from typing import Any

from flambeau.utils.data._utils.collate import default_collate, default_convert
from flambeau.utils.data._utils.worker import get_worker_info
from flambeau.utils.data.dataloader import DataLoader, _DatasetKind
from flambeau.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from flambeau.utils.data.distributed import DistributedSampler
from flambeau.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset",
    "WeightedRandomSampler", "_DatasetKind", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip

# Chained datasets are imported when they are asked for.
_PIPES = ("DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "functional_datapipe")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _PIPES:
        return getattr(importlib.import_module("flambeau.utils.data.datapipes.datapipe"), name)
    if name == "datapipes":
        return importlib.import_module("flambeau.utils.data.datapipes")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
