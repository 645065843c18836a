"""From indices to a batch: what a loader does in its own process or in a worker."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.utils.data._utils import collate
from flambeau.utils.data.dataset import Subset, TensorDataset


def _rows(dataset: Any, indices: list[int]) -> list[Any] | None:
    """The batch of a dataset of tensors taken as whole rows; None when the dataset is of another kind."""
    kind = type(dataset)
    if isinstance(dataset, Subset) and kind.__getitems__ is Subset.__getitems__ and kind.__getitem__ is _SUBSET_ITEM:
        return _rows(dataset.dataset, [dataset.indices[i] for i in indices])
    if not isinstance(dataset, TensorDataset) or kind.__getitem__ is not _TENSOR_ITEM or hasattr(kind, "__getitems__"):
        return None
    if not all(type(t) is flambeau.Tensor and t.is_cpu for t in dataset.tensors):
        return None
    count = len(dataset)
    if not all(type(i) is int and -count <= i < count for i in indices):
        return None
    chosen = flambeau.tensor([i if i >= 0 else i + count for i in indices], dtype=flambeau.int64)
    return [flambeau.index_select(t, 0, chosen) for t in dataset.tensors]


_TENSOR_ITEM = TensorDataset.__getitem__
_SUBSET_ITEM = Subset.__getitem__


class MapFetcher:
    """Batches of a dataset with an index."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
        self.dataset, self.auto_collation, self.collate_fn = dataset, auto_collation, collate_fn
        self._by_rows = auto_collation and collate_fn is collate.default_collate
        self._together = callable(getattr(dataset, "__getitems__", None))

    def fetch(self, index: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[index])
        if self._by_rows and index:
            batch = _rows(self.dataset, index)
            if batch is not None:
                return batch
            self._by_rows = isinstance(self.dataset, (TensorDataset, Subset))
        if self._together:
            data = self.dataset.__getitems__(index)
        else:
            dataset = self.dataset
            data = [dataset[i] for i in index]
        return self.collate_fn(data)


class IterableFetcher:
    """Batches of a stream; the indices only say how many samples to take."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> None:
        self.auto_collation, self.collate_fn, self.drop_last = auto_collation, collate_fn, drop_last
        self._stream = iter(dataset)
        self.ended = False

    def fetch(self, index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self._stream))
        data = []
        for _ in index:
            try:
                data.append(next(self._stream))
            except StopIteration:
                self.ended = True
                break
        if not data or (self.drop_last and len(data) < len(index)):
            raise StopIteration
        return self.collate_fn(data)
