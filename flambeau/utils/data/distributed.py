"""The sampler that gives each process of a distributed job its own part of the dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau.utils.data.dataset import Dataset
from flambeau.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


def _from_group(question: str) -> int:
    """Rank or size of the process group."""
    distributed = getattr(flambeau, "distributed", None)
    if distributed is None or not distributed.is_available():
        raise RuntimeError("[DistributedSampler] expected num_replicas and rank, or a process group, got neither")
    return getattr(distributed, question)()


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th index, starting at the rank, of an order that all ranks share."""

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        num_replicas = _from_group("get_world_size") if num_replicas is None else num_replicas
        rank = _from_group("get_rank") if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"[DistributedSampler] expected a rank in [0, {num_replicas - 1}], got {rank}: Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch = 0
        self.drop_last, self.shuffle, self.seed = drop_last, shuffle, seed
        count = len(dataset)  # type: ignore[arg-type]
        if drop_last and count % num_replicas:
            self.num_samples = math.ceil((count - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(count / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)  # type: ignore[arg-type]
        if self.shuffle:
            generator = flambeau.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = flambeau.randperm(count, generator=generator).tolist()
        else:
            indices = list(range(count))
        if self.drop_last:
            indices = indices[: self.total_size]
        elif indices:
            missing = self.total_size - count
            indices += (indices * math.ceil(missing / count))[:missing]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose another order; call it before each epoch, with the same number on every rank."""
        self.epoch = epoch
