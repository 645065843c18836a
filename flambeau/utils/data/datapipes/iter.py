"""Streams and their steps."""

from __future__ import annotations

import copy
import fnmatch
import os
import random
from collections.abc import Iterator
from typing import Any

from flambeau.utils.data._utils.collate import default_collate
from flambeau.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, functional_datapipe

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "FileLister",
    "FileOpener",
    "Filter",
    "IterableWrapper",
    "Mapper",
    "ShardingFilter",
    "Shuffler",
    "Zipper",
]


class IterableWrapper(IterDataPipe):
    """Any iterable as a stream; each pass gets its own copy unless told otherwise."""

    def __init__(self, iterable: Any, deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return len(self.iterable)


class FileLister(IterDataPipe):
    """Paths of the files below folders."""

    def __init__(
        self,
        root: Any = ".",
        masks: Any = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        self.roots = [root] if isinstance(root, str) else root
        self.masks = [masks] if isinstance(masks, str) else list(masks)
        self.recursive, self.abspath, self.length = recursive, abspath, length

    def __iter__(self) -> Iterator[str]:
        for root in self.roots:
            for folder, folders, names in os.walk(os.path.abspath(root) if self.abspath else root):
                folders.sort()
                for name in sorted(names):
                    if not any(self.masks) or any(fnmatch.fnmatch(name, mask) for mask in self.masks):
                        yield os.path.join(folder, name)
                if not self.recursive:
                    break

    def __len__(self) -> int:
        if self.length < 0:
            raise TypeError(f"[FileLister] expected a stream of known length, got {type(self).__name__}")
        return self.length


class _Step(IterDataPipe):
    """A step over one stream, as long as it."""

    def __init__(self, source_datapipe: Any) -> None:
        self.datapipe = source_datapipe

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("open_files")
class FileOpener(_Step):
    """Paths with the opened files."""

    def __init__(self, datapipe: Any, mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        super().__init__(datapipe)
        self.mode, self.encoding = mode, encoding

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path in self.datapipe:
            yield path, open(path, self.mode, encoding=self.encoding)  # noqa: SIM115


@functional_datapipe("map")
class Mapper(_Step):
    """A function of each sample, or of some columns of it."""

    def __init__(self, datapipe: Any, fn: Any, input_col: Any = None, output_col: Any = None) -> None:
        super().__init__(datapipe)
        if output_col is not None and input_col is None:
            raise ValueError("[map] expected input_col with output_col, got none")
        self.fn, self.input_col, self.output_col = fn, input_col, output_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self.input_col is None:
                yield self.fn(sample)
                continue
            columns = self.input_col if isinstance(self.input_col, (list, tuple)) else [self.input_col]
            result = self.fn(*(sample[c] for c in columns))
            changed = list(sample) if isinstance(sample, tuple) else copy.copy(sample)
            place = columns[0] if self.output_col is None else self.output_col
            if place == -1 and isinstance(changed, list):
                changed.append(result)
            else:
                changed[place] = result
            yield tuple(changed) if isinstance(sample, tuple) else changed


@functional_datapipe("filter")
class Filter(_Step):
    """The samples for which a function is true."""

    def __init__(self, datapipe: Any, filter_fn: Any, input_col: Any = None) -> None:
        super().__init__(datapipe)
        self.filter_fn, self.input_col = filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            if self.filter_fn(sample if self.input_col is None else sample[self.input_col]):
                yield sample

    def __len__(self) -> int:
        raise TypeError(f"[filter] expected a stream of known length, got {type(self).__name__}")


@functional_datapipe("batch")
class Batcher(_Step):
    """Lists of samples."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk) -> None:
        super().__init__(datapipe)
        if batch_size < 1:
            raise AssertionError(f"[batch] expected a batch size of at least 1, got {batch_size}")
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("collate")
class Collator(Mapper):
    """Batches as tensors."""

    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Any = None) -> None:
        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("shuffle")
class Shuffler(_Step):
    """Samples drawn at random from a buffer."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        super().__init__(datapipe)
        if buffer_size < 1:
            raise ValueError(f"[shuffle] expected a buffer of at least 1 sample, got {buffer_size}")
        self.buffer_size, self._enabled, self._seed = buffer_size, True, None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        self._seed = seed  # type: ignore[assignment]
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        choose = random.Random(self._seed) if self._seed is not None else random
        self._seed = None
        buffer: list[Any] = []
        for sample in self.datapipe:
            if len(buffer) == self.buffer_size:
                at = choose.randrange(len(buffer))
                buffer[at], sample = sample, buffer[at]
                yield sample
            else:
                buffer.append(sample)
        choose.shuffle(buffer)
        yield from buffer


@functional_datapipe("sharding_filter")
class ShardingFilter(_Step):
    """Every n-th sample, one share for each worker."""

    def __init__(self, source_datapipe: Any) -> None:
        super().__init__(source_datapipe)
        self.num_of_instances, self.instance_id = 1, 0

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: Any = None) -> None:
        self.num_of_instances, self.instance_id = num_of_instances, instance_id

    def __iter__(self) -> Iterator[Any]:
        from flambeau.utils.data._utils.worker import get_worker_info

        info = get_worker_info()
        count, which = self.num_of_instances, self.instance_id
        if info is not None and count == 1:
            count, which = info.num_workers, info.id
        for i, sample in enumerate(self.datapipe):
            if i % count == which:
                yield sample

    def __len__(self) -> int:
        count = len(self.datapipe)
        return count // self.num_of_instances + (self.instance_id < count % self.num_of_instances)


@functional_datapipe("concat")
class Concater(IterDataPipe):
    """Streams one after another."""

    def __init__(self, *datapipes: Any) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(Concater):
    """Tuples of the samples of several streams, until the shortest ends."""

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)
