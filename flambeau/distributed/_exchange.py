"""Groups whose collectives are written in Python over a few primitives of a library: Gloo between hosts, MPI.

`ExchangeGroup` has the methods of the native group of one host (`csrc/distributed/process_group.h`), so the rest of the package does not
know the difference. Collectives run in the order of calls, on the caller's thread or on one of the group. Before data is exchanged,
ranks compare what they are about to run, as on one host.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import _C
from flambeau import _distributed as native
from flambeau.autograd.profiler import _active as profilers

__all__ = ["ExchangeGroup", "Task", "average", "bytes_of", "deliver", "dense", "pointer", "run_message"]

_DESCRIPTION = 160  # bytes in which ranks say what they are about to run


def pointer(tensor: Any) -> Any:
    return ctypes.c_void_p(tensor.data_ptr() if tensor.numel() else 0)


def bytes_of(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


def dense(tensor: Any) -> Any:
    """A dense CPU tensor that stands for another; the same one when it is one."""
    return tensor.detach().cpu().contiguous()


def deliver(to: Any, source: Any) -> None:
    if to.data_ptr() != source.data_ptr() or to.device != source.device:
        with flambeau.no_grad():
            to.copy_(source.view(to.shape))


class Task:
    """The handle of an operation, with the methods of the native one."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action, self._done = action, threading.Event()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._source = -1

    def run(self) -> None:
        try:
            result = self._action()
            self._source = result if isinstance(result, int) else -1
        except BaseException as error:
            self._error = error
        with self._lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def wait(self, timeout: int) -> None:
        if not self._done.wait(None if timeout < 0 else timeout / 1000):
            raise native.DistBackendError(f"[wait] Timed out waiting {timeout}ms for an operation of another process")
        if self._error is not None:
            raise self._error

    def done(self) -> bool:
        return self._done.is_set()

    def error(self) -> BaseException | None:
        return self._error

    def source(self) -> int:
        return self._source

    def then(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        callback()


def average(values: Any, size: int) -> None:
    """A sum becomes a mean, in place; integers are truncated."""
    whole = values.dtype.is_floating_point or values.dtype.is_complex
    values.div_(size) if whole else values.div_(size, rounding_mode="trunc")


def run_message(action: Callable[[], int], is_async: bool) -> Task:
    """Waits for a message that was started, on a thread of its own when the caller does not wait."""
    task = Task(action)
    if is_async:
        threading.Thread(target=task.run, name="message", daemon=True).start()
        return task
    task.run()
    task.wait(-1)
    return task


def recording(name: str, tensor: Any) -> Callable[[], None]:
    """What ends the range of an operation in a profile."""
    if not profilers:
        return lambda: None
    start, shapes = time.perf_counter_ns(), () if tensor is None else (str(list(tensor.shape)),)
    return lambda: _C._profiler_record(name, start, shapes)


class ExchangeGroup:
    """Collectives over the primitives that subclasses have."""

    _library = "gloo"  # by which profiles name it

    def __init__(self, rank: int, size: int, name: str) -> None:
        self._rank, self._size, self._name = rank, size, name
        self._queue: queue.Queue[Task | None] = queue.Queue()
        self._pending, self._sequence, self._lock = 0, 0, threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._recent: list[tuple[int, str, int, int]] = []
        self._moved = 0

    # ------------------------------------------------------------------------------------ primitives

    def _barrier(self, limit: int) -> None:
        raise NotImplementedError

    def _broadcast(self, values: Any, root: int, limit: int) -> None:
        """A dense tensor of one rank, in the memory of all."""
        raise NotImplementedError

    def _reduced(self, tensor: Any, reduction: int, limit: int) -> Any:
        """The reduction of all ranks' tensors, in new memory."""
        raise NotImplementedError

    def _gathered(self, tensor: Any, limit: int) -> Any:
        """The dense tensors of all ranks, equally large, one after the other."""
        raise NotImplementedError

    def _exchanged(
        self, sent: Any, sent_sizes: list[int], received: Any, received_sizes: list[int], limit: int
    ) -> None:
        """Part j of each rank's dense tensor goes to rank j; sizes are numbers of bytes."""
        raise NotImplementedError

    def _close_links(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ running

    def _run(self, what: str, tensor: Any, is_async: bool, limit: int, body: Callable[[], Any]) -> Any:
        """Runs a collective in the order of calls: on the caller's thread when nothing is queued."""

        record = recording(f"{self._library}:{what.partition(' ')[0]}", tensor)

        def action() -> None:
            self._exchange(what, tensor, limit, body)
            record()

        if not is_async and self._pending == 0:
            action()
            return None
        task = Task(action)
        with self._lock:
            self._pending += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="hosts", daemon=True)
                self._thread.start()
        self._queue.put(task)
        if is_async:
            return task
        task.wait(-1)
        return None

    def _serve(self) -> None:
        while (task := self._queue.get()) is not None:
            task.run()
            with self._lock:
                self._pending -= 1

    def _exchange(self, what: str, tensor: Any, limit: int, body: Callable[[], Any]) -> None:
        if self._failure is not None:
            raise native.DistBackendError(f"[{what}] expected a working group, got one that failed: {self._failure}")
        self._sequence += 1
        shape = "" if tensor is None else f" {str(tensor.dtype).rpartition('.')[2]} {list(tensor.shape)}"
        description = f"{what}{shape} #{self._sequence}"
        start = time.monotonic_ns()
        try:
            self._agree(what, description, limit)
            body()
        except native.DistError as error:
            if "mismatch" not in str(error):  # after a mismatch the group is still in step
                self._failure = error
                self._close_links()  # so that nobody waits for this process
            raise
        self._moved += 0 if tensor is None else bytes_of(tensor)
        self._recent = [*self._recent[-255:], (self._sequence, description, start, time.monotonic_ns())]

    def _agree(self, what: str, description: str, limit: int) -> None:
        own = flambeau.zeros(_DESCRIPTION, dtype=flambeau.uint8)
        text = description.encode()[:_DESCRIPTION]
        own[: len(text)] = flambeau.frombuffer(bytearray(text), dtype=flambeau.uint8)
        whole = self._gathered(own, limit)
        if (whole.view(self._size, -1) == own).all():
            return
        told = [bytes(row.tolist()).rstrip(b"\0").decode(errors="replace") for row in whole.view(self._size, -1)]
        listed = ", ".join(f"rank {rank} runs {one}" for rank, one in enumerate(told))
        raise native.DistBackendError(
            f"[{what}] expected the same collective on all ranks of group '{self._name}', got a mismatch: {listed}"
        )

    # ------------------------------------------------------------------------------------ collectives

    def barrier(self, is_async: bool, limit: int) -> Any:
        return self._run("barrier", None, is_async, limit, lambda: self._barrier(limit))

    def broadcast(self, tensor: Any, root: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            values = dense(tensor)
            self._broadcast(values, root, limit)
            deliver(tensor, values)

        return self._run(f"broadcast root={root}", tensor, is_async, limit, body)

    def all_reduce(self, tensor: Any, reduction: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            deliver(tensor, self._reduced(tensor, reduction, limit))

        return self._run(f"all_reduce op={int(reduction)}", tensor, is_async, limit, body)

    def reduce(self, tensor: Any, root: int, reduction: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            result = self._reduced(tensor, reduction, limit)
            if self._rank == root:
                deliver(tensor, result)

        return self._run(f"reduce root={root} op={int(reduction)}", tensor, is_async, limit, body)

    def all_gather(self, to: list[Any], tensor: Any, is_async: bool, limit: int) -> Any:
        if len(to) != self._size:
            raise RuntimeError(
                f"[all_gather] expected a list of {self._size} tensors, one for each rank, got {len(to)}"
            )

        def body() -> None:
            self._spread(to, tensor, limit)

        return self._run("all_gather", tensor, is_async, limit, body)

    def _spread(self, to: list[Any], tensor: Any, limit: int) -> None:
        parts = self._gathered(dense(tensor).view(-1), limit).chunk(self._size) if tensor.numel() else []
        for place, part in zip(to, parts):
            deliver(place, part)

    def gather(self, to: list[Any], tensor: Any, root: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            rooms = to if self._rank == root else [flambeau.empty_like(tensor) for _ in range(self._size)]
            self._spread(rooms, tensor, limit)

        return self._run(f"gather root={root}", tensor, is_async, limit, body)

    def scatter(self, tensor: Any, inputs: list[Any], root: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            empty = [tensor.new_empty(0)] * self._size
            rooms = [flambeau.empty_like(tensor) if rank == root else empty[0] for rank in range(self._size)]
            self._swap(rooms, list(inputs) if self._rank == root else empty, limit)
            deliver(tensor, rooms[root])

        return self._run(f"scatter root={root}", tensor, is_async, limit, body)

    def reduce_scatter(self, tensor: Any, inputs: list[Any], reduction: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            stacked = flambeau.cat([dense(one).view(-1) for one in inputs])
            result = self._reduced(stacked, reduction, limit)
            deliver(tensor, result.chunk(self._size)[self._rank] if result.numel() else result)

        return self._run(f"reduce_scatter op={int(reduction)}", tensor, is_async, limit, body)

    def all_to_all(self, to: list[Any], inputs: list[Any], is_async: bool, limit: int) -> Any:
        return self._run("all_to_all", None, is_async, limit, lambda: self._swap(to, inputs, limit))

    def _swap(self, to: list[Any], inputs: list[Any], limit: int) -> None:
        """Tensor j of each rank goes to rank j; sizes may differ."""
        sent = flambeau.cat([dense(one).view(-1) for one in inputs])
        received = sent.new_empty(sum(one.numel() for one in to))
        self._exchanged(sent, [bytes_of(one) for one in inputs], received, [bytes_of(one) for one in to], limit)
        for place, part in zip(to, received.split([one.numel() for one in to])):
            if place.numel():
                deliver(place, part)

    # ------------------------------------------------------------------------------------ questions

    def sequence(self) -> int:
        return self._sequence

    def recent(self) -> list[tuple[int, str, int, int]]:
        return self._recent

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(5)
            self._thread = None
        self._close_links()
