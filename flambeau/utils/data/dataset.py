"""Datasets: objects with samples by index, streams of samples, and ways to combine them."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import flambeau
from flambeau._C import Tensor, default_generator

T_co = TypeVar("T_co", covariant=True)
_T = TypeVar("_T")


class Dataset(Generic[T_co]):
    """Base class of datasets whose items are found by an index: write `__getitem__` and `__len__`.

    >>> class Squares(flambeau.utils.data.Dataset):
    ...     def __getitem__(self, index):
    ...         return index**2
    ...     def __len__(self):
    ...         return 3
    >>> Squares()[2]
    4
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(
            f"[Dataset] expected {type(self).__name__} to define __getitem__, got a class without it"
        )

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Base class of datasets that are a stream of items: write `__iter__`.

    >>> class Count(flambeau.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(flambeau.utils.data.DataLoader(Count(), batch_size=2))
    [tensor([0, 1]), tensor([2])]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(
            f"[IterableDataset] expected {type(self).__name__} to define __iter__, got a class without it"
        )

    def __add__(self, other: Dataset[T_co]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of several tensors of the same length.

    - tensors: the tensors; item i is a tuple of their rows i.

    >>> flambeau.utils.data.TensorDataset(flambeau.arange(3), flambeau.arange(3) * 10)[1]
    (tensor(1), tensor(10))
    """

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensors[0].size(0) != tensor.size(0) for tensor in tensors):
            raise AssertionError(
                f"[TensorDataset] expected tensors of equal length, got {[t.size(0) for t in tensors]}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset[Any]):
    """Items of several datasets together, as tuples or dicts.

    - args, or kwargs: the datasets.

    >>> flambeau.utils.data.StackDataset(a=[1, 2], b=[3, 4])[1]
    {'a': 2, 'b': 4}
    """

    datasets: Any

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError(
                "[StackDataset] expected datasets either by position or by name, got both or none: At least one dataset should be passed"
            )
        self.datasets = args or kwargs
        parts = args or tuple(kwargs.values())
        lengths = [len(part) for part in parts]  # type: ignore[arg-type]
        self._length = lengths[0]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"[StackDataset] expected datasets of equal length, got {lengths}: Size mismatch between datasets"
            )

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple(dataset[index] for dataset in self.datasets)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        if isinstance(self.datasets, dict):
            columns = {name: _samples(dataset, indices) for name, dataset in self.datasets.items()}
            return [{name: column[i] for name, column in columns.items()} for i in range(len(indices))]
        return list(zip(*(_samples(dataset, indices) for dataset in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


def _samples(dataset: Any, indices: list[Any]) -> list[Any]:
    """Samples of a dataset that part of a combined one, fetched together where it can."""
    fetch = getattr(dataset, "__getitems__", None)
    if not callable(fetch):
        return [dataset[i] for i in indices]
    items = fetch(indices)
    if len(items) != len(indices):
        raise ValueError(
            f"[StackDataset] expected {len(indices)} samples of __getitems__, got {len(items)}: Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}"
        )
    return items


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other.

    - datasets: the datasets.

    >>> len(flambeau.utils.data.ConcatDataset([[1, 2], [3]]))
    3
    """

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        return list(itertools.accumulate(len(e) for e in sequence))

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("[ConcatDataset] expected at least one dataset, got none")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError(
                "[ConcatDataset] expected datasets with an index, got an IterableDataset: ConcatDataset does not support IterableDataset"
            )
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"[ConcatDataset] expected an index in [-{len(self)}, {len(self)}), got {idx}")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]

    @property
    def cummulative_sizes(self) -> list[int]:
        warnings.warn("cummulative_sizes is now cumulative_sizes", DeprecationWarning, stacklevel=2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Streams of items one after the other.

    - datasets: iterable datasets.

    >>> class Count(flambeau.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(flambeau.utils.data.ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        super().__init__()
        self.datasets = datasets

    def _streams(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(
                    f"[ChainDataset] expected IterableDatasets, got {type(dataset).__name__}: ChainDataset only supports IterableDataset"
                )
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        for dataset in self._streams():
            yield from dataset

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._streams())


class Subset(Dataset[T_co]):
    """Some items of a dataset.

    - dataset; indices: which.

    >>> flambeau.utils.data.Subset([10, 20, 30], [2, 0])[0]
    30
    """

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        chosen = [self.indices[i] for i in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        return fetch(chosen) if callable(fetch) else [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[_T], lengths: Sequence[int | float], generator: Any = default_generator
) -> list[Subset[_T]]:
    """A dataset divided at random into parts.

    - dataset; lengths: of the parts, or their shares; generator.

    >>> [len(part) for part in flambeau.utils.data.random_split(range(10), [0.7, 0.3])]
    [7, 3]
    """
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"[random_split] expected fractions between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * fraction) for fraction in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
        for i, size in enumerate(sizes):
            if size == 0:
                warnings.warn(
                    f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=2
                )
        lengths = sizes
    if sum(lengths) != total:
        raise ValueError(f"[random_split] expected lengths that add up to {total}, got {list(lengths)}")
    order = flambeau.randperm(total, generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
