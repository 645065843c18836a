"""What a worker process of a loader does: receive indices, fetch, send batches, until the loader is gone."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau._utils import ExceptionWrapper
from flambeau.utils.data._utils.transport import DATA, ENDED, ERROR, RESUMED, Channel, Closed, Packet


class WorkerInfo:
    """What `get_worker_info` gives: number of the worker, number of workers, seed, and this worker's dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        vars(self).update(id=id, num_workers=num_workers, seed=seed, dataset=dataset)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"[get_worker_info] expected WorkerInfo to be left alone, got an assignment to {name!r}")

    def __repr__(self) -> str:
        return f"WorkerInfo({', '.join(f'{name}={value}' for name, value in vars(self).items())})"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """What a worker process of a DataLoader is: id, num_workers, seed, dataset; None in the main process.

    >>> flambeau.utils.data.get_worker_info() is None
    True
    """
    return _worker_info


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """Four numbers that seed other generators of a worker, as numpy.random.SeedSequence derives them."""
    import numpy

    entropy = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32]
    return numpy.random.SeedSequence(entropy).generate_state(4).tolist()


def seed_everything(seed: int) -> None:
    """Seeds the generators of this worker."""
    import random

    random.seed(seed)
    flambeau.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed((seed ^ (seed >> 32)) & 0xFFFFFFFF)


def is_abandoned(end: socket.socket) -> bool:
    """Whether the loader has closed its end, even if messages are still waiting."""
    poll = select.poll()
    poll.register(end, 0)
    return bool(poll.poll(0))


@contextlib.contextmanager
def interrupts_held(held: bool = True) -> Iterator[None]:
    """Within, Ctrl-C waits (or comes through again). Workers are started so and let it through only while they serve:
    the loader raises KeyboardInterrupt, and a worker that is just starting or ending would print a second one."""
    how = signal.SIG_BLOCK if held else signal.SIG_UNBLOCK
    before = signal.pthread_sigmask(how, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run(end: socket.socket, *args: Any) -> None:
    """The life of a worker."""
    try:
        with contextlib.closing(end), interrupts_held(False):
            _serve(end, *args)
    except (Closed, KeyboardInterrupt):
        pass  # the loader is gone, or raises KeyboardInterrupt itself


def _serve(
    end: socket.socket,
    make_fetcher: Any,
    dataset: Any,
    fetcher_args: tuple[Any, ...],
    seed: int,
    worker_id: int,
    num_workers: int,
    init_fn: Any,
) -> None:
    """Answers the loader until it is gone."""
    global _worker_info
    end.setblocking(True)
    channel = Channel(end, recycle=True)
    flambeau.set_num_threads(1)
    seed_everything(seed)
    _worker_info = WorkerInfo(worker_id, num_workers, seed, dataset)
    failure: ExceptionWrapper | None = None
    fetcher = None
    try:
        if init_fn is not None:
            init_fn(worker_id)
        fetcher = make_fetcher(dataset, *fetcher_args)
    except Exception:
        failure = ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
    while not is_abandoned(end):
        task, kind, value = channel.receive()
        if kind == RESUMED:
            failure = None
            try:
                fetcher = make_fetcher(dataset, *fetcher_args)
            except Exception:
                failure = ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
            channel.packet(task, RESUMED, None).send(end)
            continue
        _answer(channel, task, value, fetcher, failure, worker_id).send(end)
        failure = None
        del value


def _answer(channel: Channel, task: int, index: Any, fetcher: Any, failure: Any, worker_id: int) -> Packet:
    """The message with a batch, or with what prevented it."""
    try:
        if failure is not None:
            return channel.packet(task, ERROR, failure)
        return channel.packet(task, DATA, fetcher.fetch(index))
    except StopIteration:
        from flambeau.utils.data._utils.fetch import IterableFetcher

        if isinstance(fetcher, IterableFetcher):
            return channel.packet(task, ENDED, None)
        return _error(channel, task, worker_id)
    except Exception:
        return _error(channel, task, worker_id)


def _error(channel: Channel, task: int, worker_id: int) -> Packet:
    wrapper = ExceptionWrapper(where=f"in DataLoader worker process {worker_id}")
    try:
        return channel.packet(task, ERROR, wrapper)
    except Exception:  # the exception's class cannot be pickled
        wrapper.exc_type = RuntimeError
        return channel.packet(task, ERROR, wrapper)
