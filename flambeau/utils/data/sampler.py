"""Samplers: the order in which a loader visits a dataset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

import flambeau

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
]  # fmt: skip

_T_co = TypeVar("_T_co", covariant=True)
_CHUNK = 32  # permutations drawn at a time when sampling beyond the data


class Sampler(Generic[_T_co]):
    """Base class of orders: write `__iter__`, which gives the indices.

    >>> class Backwards(flambeau.utils.data.Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> list(flambeau.utils.data.DataLoader([10, 20, 30], sampler=Backwards(), batch_size=None))
    [30, 20, 10]
    """

    def __init__(self, data_source: Any = None) -> None: ...

    def __iter__(self) -> Iterator[_T_co]:
        raise NotImplementedError(
            f"[Sampler] expected {type(self).__name__} to define __iter__, got a class without it"
        )


def _need_bool(name: str, what: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(
            f"[{name}] expected a bool for {what}, got {value!r}: {what} should be a boolean value, but got {what}={value}"
        )


def _need_count(name: str, what: str, value: Any, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"[{name}] expected a positive integer for {what}, got {value!r}: {what} should be a positive integer value, "
            f"but got {what}={value}"
        )


def _seeded(generator: Any) -> Any:
    """The given generator, or a new one seeded from the default one."""
    if generator is not None:
        return generator
    seeded = flambeau.Generator()
    seeded.manual_seed(int(flambeau.empty((), dtype=flambeau.int64).random_().item()))
    return seeded


class SequentialSampler(Sampler[int]):
    """Indices in order.

    - data_source: the dataset.

    >>> list(flambeau.utils.data.SequentialSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in random order.

    - data_source: the dataset; replacement: whether an index can come twice; num_samples; generator.

    >>> sorted(flambeau.utils.data.RandomSampler([7, 8, 9]))
    [0, 1, 2]
    """

    def __init__(
        self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _need_bool("RandomSampler", "replacement", replacement)
        _need_count("RandomSampler", "num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        generator = _seeded(self.generator)
        if self.replacement:
            for start in range(0, wanted, _CHUNK):
                count = min(_CHUNK, wanted - start)
                yield from flambeau.randint(n, (count,), dtype=flambeau.int64, generator=generator).tolist()
            return
        while wanted > 0 and n > 0:
            yield from flambeau.randperm(n, generator=generator).tolist()[:wanted]
            wanted -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Given indices in random order.

    - indices; generator.

    >>> sorted(flambeau.utils.data.SubsetRandomSampler([4, 2]))
    [2, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in flambeau.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with given weights.

    - weights: of the indices; num_samples; replacement; generator.

    >>> list(flambeau.utils.data.WeightedRandomSampler([0.0, 1.0], 2))
    [1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None
    ) -> None:
        _need_count("WeightedRandomSampler", "num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(
                f"[WeightedRandomSampler] expected a bool for replacement, got {replacement!r}: replacement should be a boolean value, but got replacement={replacement}"
            )
        self.weights = flambeau.as_tensor(weights, dtype=flambeau.double)
        if self.weights.dim() != 1:
            raise ValueError(
                f"[WeightedRandomSampler] expected weights in one dimension, got shape {tuple(self.weights.shape)}"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = flambeau.multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of indices of another sampler.

    - sampler; batch_size; drop_last: the list that is not full.

    >>> list(flambeau.utils.data.BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        _need_count("BatchSampler", "batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"[BatchSampler] expected a bool for drop_last, got {drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
