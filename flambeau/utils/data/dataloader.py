"""DataLoader: batches of a dataset in some order, made here or by worker processes."""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import flambeau
from flambeau._utils import ExceptionWrapper
from flambeau.utils.data import _utils
from flambeau.utils.data._utils.collate import default_collate, default_convert
from flambeau.utils.data._utils.fetch import IterableFetcher, MapFetcher
from flambeau.utils.data._utils.worker import get_worker_info
from flambeau.utils.data.dataset import Dataset, IterableDataset
from flambeau.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T_co = TypeVar("_T_co", covariant=True)

_collate_fn_t = Callable[[list[Any]], Any]  # names of types that libraries import
_worker_init_fn_t = Callable[[int], None]


class _DatasetKind:
    Map = 0
    Iterable = 1

    @staticmethod
    def create_fetcher(kind: int, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool) -> Any:
        make = MapFetcher if kind == _DatasetKind.Map else IterableFetcher
        return make(dataset, auto_collation, collate_fn, drop_last)


class _InfiniteConstantSampler(Sampler[None]):
    """For streams: the sampler only says that there is another sample to ask for."""

    def __iter__(self) -> Any:
        return itertools.repeat(None)


def _refuse(text: str) -> ValueError:
    return ValueError(f"[DataLoader] expected {text}")


class DataLoader(Generic[_T_co]):
    """An iterable of the batches of a dataset.

    - dataset; batch_size: None for single items; shuffle, sampler, batch_sampler: the order; drop_last: the batch that is not full.
    - num_workers: processes that load; prefetch_factor, persistent_workers, worker_init_fn, multiprocessing_context, timeout, in_order.
    - collate_fn: joins items into a batch; pin_memory: for quick copies to a device; generator.

    >>> loader = flambeau.utils.data.DataLoader(range(5), batch_size=2)
    >>> [batch.tolist() for batch in loader]
    [[0, 1], [2, 3], [4]]
    """

    dataset: Dataset[_T_co]
    batch_size: int | None
    num_workers: int
    pin_memory: bool
    drop_last: bool
    timeout: float
    sampler: Any
    pin_memory_device: str
    prefetch_factor: int | None
    _iterator: _BaseDataLoaderIter | None
    __initialized = False

    def __init__(
        self,
        dataset: Dataset[_T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise _refuse(
                f"num_workers of at least 0, got {num_workers}: num_workers option should be non-negative; use num_workers=0 to disable multiprocessing."
            )
        if timeout < 0:
            raise _refuse(f"a timeout of at least 0, got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise _refuse(f"no prefetch_factor without workers, got {prefetch_factor}")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise _refuse(f"a prefetch_factor of at least 1, got {prefetch_factor}")
        if persistent_workers and num_workers == 0:
            raise _refuse("workers with persistent_workers=True, got num_workers=0")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers > 0 and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            if shuffle not in (False, None):
                raise _refuse(f"no shuffling of an IterableDataset, got shuffle={shuffle}")
            if sampler is not None or batch_sampler is not None:
                raise _refuse("no sampler for an IterableDataset, got one")
        else:
            shuffle = bool(shuffle)
            self._dataset_kind = _DatasetKind.Map
        if sampler is not None and shuffle:
            raise _refuse("either a sampler or shuffle=True, got both")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise _refuse("a batch_sampler without batch_size, shuffle, sampler and drop_last, got more of them")
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise _refuse("drop_last only with batches, got batch_size=None")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            else:
                sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.generator = generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self.__initialized = True
        self._IterableDataset_len_called: int | None = None
        self._iterator = None
        self.check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
        if self.__initialized and name in fixed:
            raise ValueError(f"[DataLoader] expected {name} to be left as it was made, got an assignment")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        return self.__context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            import multiprocessing
            from multiprocessing.context import BaseContext

            if self.num_workers == 0:
                raise _refuse(f"workers with a multiprocessing_context, got num_workers=0 and {context!r}")
            if isinstance(context, str):
                known = multiprocessing.get_all_start_methods()
                if context not in known:
                    raise _refuse(f"one of {known} as multiprocessing_context, got {context!r}")
                context = multiprocessing.get_context(context)
            elif not isinstance(context, BaseContext):
                raise TypeError(
                    f"[DataLoader] expected a context or the name of a start method, got {type(context).__name__}"
                )
        self.__context = context

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if self.persistent_workers and self.num_workers > 0:
            if self._iterator is not None and self._iterator._can_go_on():
                self._iterator._reset(self)
            else:  # the first time, or after a worker died
                self._iterator = self._get_iterator()
            return self._iterator
        return self._get_iterator()

    def __len__(self) -> int:
        if self._dataset_kind != _DatasetKind.Iterable:
            return len(self._index_sampler)
        length = self._IterableDataset_len_called = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is not None:
            length = length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        return length

    def check_worker_number_rationality(self) -> None:
        """Warns when there are more workers than processors for them."""
        if not self.num_workers or not self.num_workers > 0:
            return
        try:
            limit = len(os.sched_getaffinity(0))
        except AttributeError:
            limit = os.cpu_count() or 0
        if limit and self.num_workers > limit:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total, while {limit} processors "
                "are available. Note that excessive worker creation might get DataLoader running slow or even freeze.",
                stacklevel=3,
            )


class _BaseDataLoaderIter:
    """What both iterators share: the order of indices, seeds, and counting."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._dataset = loader.dataset
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = loader._IterableDataset_len_called
        self._auto_collation = loader._auto_collation
        self._drop_last = loader.drop_last
        self._index_sampler = loader._index_sampler
        self._num_workers = loader.num_workers
        self._timeout = loader.timeout
        self._collate_fn = loader.collate_fn
        self._pin_memory = loader.pin_memory and flambeau.accelerator.is_available()
        if loader.pin_memory and not self._pin_memory:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be "
                "used.",
                stacklevel=4,
            )
        self._sampler_iter = iter(self._index_sampler)
        self._base_seed = self._new_seed(loader)
        self._persistent_workers = loader.persistent_workers
        self._num_yielded = 0

    @staticmethod
    def _new_seed(loader: DataLoader[Any]) -> int:
        return int(flambeau.empty((), dtype=flambeau.int64).random_(generator=loader.generator).item())

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _reset(self, loader: DataLoader[Any]) -> None:
        self._sampler_iter = iter(self._index_sampler)
        self._num_yielded = 0
        self._IterableDataset_len_called = loader._IterableDataset_len_called

    def _can_go_on(self) -> bool:
        """Whether another epoch can follow."""
        return True

    def _next_index(self) -> Any:
        return next(self._sampler_iter)

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        if self._pin_memory:
            from flambeau.utils.data._utils.pin_memory import pin_memory

            data = pin_memory(data)
        self._num_yielded += 1
        promised = self._IterableDataset_len_called
        if promised is not None and self._num_yielded > promised and self._dataset_kind == _DatasetKind.Iterable:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be {promised} (when accessing "
                f"len(dataloader)), but {self._num_yielded} samples have been fetched. "
            )
            if self._num_workers > 0:
                text += (
                    "For multiprocessing data-loading, this could be caused by not properly configuring the "
                    "IterableDataset replica at each worker."
                )
            warnings.warn(text, stacklevel=2)
        return data

    def __len__(self) -> int:
        return len(self._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} cannot be pickled")


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """Makes each batch when it is asked for."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        if self._timeout != 0:
            raise AssertionError(f"[DataLoader] expected no timeout without workers, got {self._timeout}")
        self._dataset_fetcher = _DatasetKind.create_fetcher(
            self._dataset_kind, self._dataset, self._auto_collation, self._collate_fn, self._drop_last
        )

    def _next_data(self) -> Any:
        return self._dataset_fetcher.fetch(next(self._sampler_iter))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Hands tasks to workers ahead of time and gives out their batches in order.

    A task is the indices of one batch, numbered as it is handed out. Each worker has a share of `prefetch_factor` tasks
    in flight; a finished one makes room for the next. Batches that arrive early wait in `_arrived`.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        import multiprocessing

        from flambeau.utils.data._utils import processes, worker

        context = loader.multiprocessing_context or multiprocessing.get_context()
        fetcher_args = (self._auto_collation, self._collate_fn, self._drop_last)
        make_fetcher = MapFetcher if self._dataset_kind == _DatasetKind.Map else IterableFetcher
        self._in_order = loader.in_order
        self._prefetch_factor = loader.prefetch_factor or 2

        def args_of(number: int) -> tuple[Any, ...]:
            seed = self._base_seed + number
            shared = (make_fetcher, self._dataset, fetcher_args, seed, number, self._num_workers)
            return (*shared, loader.worker_init_fn)

        self._pool = processes.WorkerPool(context, self._num_workers, worker.run, args_of)
        self._finish = weakref.finalize(self, self._pool.close)
        self._reset(loader, first_iter=True)

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        from flambeau.utils.data._utils.transport import RESUMED

        super()._reset(loader)
        if not first_iter:
            outstanding = {worker.number for worker in self._pool.workers}
            for worker in self._pool.workers:
                worker.active = True
                worker.send(-1, RESUMED, None)
            while outstanding:  # batches of the epoch that was broken off arrive before the answers
                worker, _, kind, _ = self._wait()
                if kind == RESUMED:
                    outstanding.discard(worker.number)
        self._sent = self._given = 0
        self._who: dict[int, Any] = {}  # the worker of each task in flight
        self._arrived: dict[int, tuple[int, Any]] = {}
        self._exhausted = False
        self._load = dict.fromkeys(range(self._num_workers), 0)
        self._turn = itertools.cycle(range(self._num_workers))
        self._ready: collections.deque[int] = collections.deque()
        for _ in range(self._prefetch_factor * self._num_workers):
            self._hand_out()

    def _wait(self) -> Any:
        """The next message of any worker."""
        try:
            message = self._pool.receive(self._timeout or None)
        except RuntimeError:  # a worker died: the others have no use alone
            self._finish()
            raise
        if message is None:
            raise RuntimeError(
                f"[DataLoader] expected a batch within {self._timeout} seconds, got none in time: DataLoader timed out "
                f"after {self._timeout} seconds"
            )
        return message

    def _hand_out(self) -> None:
        """Gives the next indices to the next worker that still takes them."""
        from flambeau.utils.data._utils.transport import DATA

        if self._exhausted:
            return
        workers = self._pool.workers
        for _ in range(self._num_workers):
            number = next(self._turn)
            if workers[number].active and (self._in_order or self._load[number] < self._prefetch_factor):
                break
        else:
            return
        try:
            index = self._next_index()
        except StopIteration:
            self._exhausted = True
            return
        task, self._sent = self._sent, self._sent + 1
        self._who[task] = workers[number]
        self._load[number] += 1
        with contextlib.suppress(_utils.Closed):  # noticed when its batch is waited for
            workers[number].send(task, DATA, index)

    def _accept(self, message: Any) -> None:
        """Notes what a worker sent."""
        from flambeau.utils.data._utils.transport import ENDED, RESUMED

        worker, task, kind, value = message
        if kind == RESUMED or task not in self._who:
            return
        del self._who[task]
        self._load[worker.number] -= 1
        if kind == ENDED:
            worker.active = False
        self._arrived[task] = (kind, value)
        self._ready.append(task)

    def _next_data(self) -> Any:
        from flambeau.utils.data._utils.transport import ENDED, ERROR

        while True:
            if not self._pool.workers or (self._given >= self._sent and not self._who and not self._ready):
                if not self._persistent_workers:
                    self._finish()
                raise StopIteration
            while True:
                task = self._given if self._in_order else (self._ready[0] if self._ready else -1)
                if task in self._arrived:
                    break
                self._accept(self._wait())
            kind, value = self._arrived.pop(task)
            self._ready.remove(task)
            self._given += 1
            self._hand_out()
            if kind == ENDED:
                continue
            if kind == ERROR:
                if isinstance(value, ExceptionWrapper):
                    value.reraise()
                raise RuntimeError(f"[DataLoader] expected a batch, got {value!r}")
            return value

    @property
    def _workers(self) -> list[Any]:
        """The processes."""
        return [worker.process for worker in self._pool.workers]

    def _can_go_on(self) -> bool:
        return bool(self._workers) and all(process.is_alive() for process in self._workers)

    def _shutdown_workers(self) -> None:
        self._finish()

    def __del__(self) -> None:
        finish = getattr(self, "_finish", None)
        if finish is not None:
            finish()
