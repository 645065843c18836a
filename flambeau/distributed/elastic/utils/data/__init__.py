"""Data for jobs whose number of processes changes: samplers that start in the middle, iterators over several epochs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import flambeau
from flambeau.utils.data.distributed import DistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]

T = TypeVar("T")


class CyclingIterator(Generic[T]):
    """The iterators that a function makes for `n` epochs, one after the other."""

    def __init__(self, n: int, generator_fn: Callable[[int], Iterator[T]], start_epoch: int = 0) -> None:
        self._epoch, self._end, self._generator = start_epoch, n, generator_fn
        self._current = iter(generator_fn(start_epoch))

    def __iter__(self) -> CyclingIterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return next(self._current)
        except StopIteration:
            if self._epoch >= self._end - 1:
                raise
            self._epoch += 1
            self._current = iter(self._generator(self._epoch))
            return next(self)


class ElasticDistributedSampler(DistributedSampler):
    """Divides what is left of a dataset, from `start_index`, among processes."""

    def __init__(
        self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0
    ) -> None:
        super().__init__(dataset, num_replicas, rank)
        if start_index >= len(dataset):
            raise ValueError(f"[ElasticDistributedSampler] expected a start below {len(dataset)}, got {start_index}")
        self.start_index, self.size = start_index, len(dataset)
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[Any]:
        generator = flambeau.Generator()
        generator.manual_seed(self.epoch)
        left = self.size - self.start_index
        indices = [self.start_index + int(i) for i in flambeau.randperm(left, generator=generator)]
        indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
