"""The loader's side of its worker processes: hand out indices, wait for batches, notice deaths, clean up."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import signal
import socket
import time
import weakref
from typing import Any

from flambeau.utils.data._utils import transport
from flambeau.utils.data._utils.transport import Channel, Closed, Packet
from flambeau.utils.data._utils.worker import interrupts_held

_GRACE = 5.0  # seconds a worker gets to finish the sample it is at

# The loaders' ends of all sockets. A forked child closes its copies: while it held them, workers would not notice that
# their loader is gone.
_ends: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _forget_ends() -> None:
    for end in list(_ends):
        with contextlib.suppress(OSError):
            end.close()
    _ends.clear()


os.register_at_fork(after_in_child=_forget_ends)


class Worker:
    """One process and the socket to it."""

    def __init__(self, context: Any, number: int, target: Any, args: tuple[Any, ...]) -> None:
        self.number = number
        self.end, theirs = transport.pair()
        _ends.add(self.end)
        try:
            self.process = context.Process(target=target, args=(theirs, *args), daemon=True)
            with interrupts_held():
                self.process.start()
        except BaseException:
            self.end.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(self.end, recycle=False)
        self.waiting: collections.deque[Packet] = collections.deque()  # messages the socket had no room for
        self.polled = select.POLLIN  # the events its socket is watched for
        self.active = True

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, task: int, kind: int, value: Any) -> None:
        self.waiting.append(self.channel.packet(task, kind, value))
        self.flush()

    def flush(self) -> None:
        while self.waiting and self.waiting[0].send(self.end):
            self.waiting.popleft()

    def how_it_ended(self) -> str:
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:
            return "closed its connection"
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = str(-code)
            hint = ""
            if -code == signal.SIGKILL:
                hint = "; the system may have run out of memory"
            elif -code == signal.SIGBUS:
                hint = "; shared memory may have run out (/dev/shm, or the memory limit)"
            return f"was killed by signal {name}{hint}"
        return f"exited with code {code}"


class WorkerPool:
    """The workers of one iterator."""

    def __init__(self, context: Any, count: int, target: Any, args_of: Any) -> None:
        self._poll = select.poll()
        self.workers: list[Worker] = []
        self._by_descriptor: dict[int, Worker] = {}
        self._owner = os.getpid()
        try:
            for number in range(count):
                worker = Worker(context, number, target, args_of(number))
                self.workers.append(worker)
                for descriptor in (worker.end.fileno(), worker.process.sentinel):
                    self._by_descriptor[descriptor] = worker
                    self._poll.register(descriptor, select.POLLIN)
        except BaseException:
            self.close()
            raise

    def receive(self, timeout: float | None) -> tuple[Worker, int, int, Any] | None:
        """The next message of any worker, or None when there was none in time. Raises when a worker died."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for worker in self.workers:
                if worker.active:
                    mask = select.POLLIN | select.POLLOUT if worker.waiting else select.POLLIN
                    if mask != worker.polled:
                        self._poll.modify(worker.end.fileno(), mask)
                        worker.polled = mask
            events = self._poll.poll(None if left is None else left * 1000)
            if not events:
                return None
            dead = []
            for descriptor, event in events:
                worker = self._by_descriptor[descriptor]
                if descriptor != worker.end.fileno():
                    dead.append(worker)
                    continue
                try:
                    if event & select.POLLOUT:
                        worker.flush()
                    if event & ~select.POLLOUT:
                        return (worker, *worker.channel.receive())
                except BlockingIOError:
                    continue
                except Closed:
                    dead.append(worker)
            for worker in dead:
                # What it sent before it died still counts.
                try:
                    return (worker, *worker.channel.receive())
                except (Closed, BlockingIOError, OSError):
                    pass
                if worker.active:
                    raise RuntimeError(
                        f"[DataLoader] expected worker {worker.number} (pid {worker.pid}) to keep running, but it "
                        f"{worker.how_it_ended()}"
                    )
                self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        for descriptor in (worker.end.fileno(), worker.process.sentinel):
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._poll.unregister(descriptor)

    def close(self) -> None:
        """Ends all workers: they see their socket close, and are killed when they do not act on it in time."""
        workers, self.workers = self.workers, []
        if not workers or self._owner != os.getpid():
            return
        for worker in workers:
            worker.active = False
            worker.waiting.clear()
            with contextlib.suppress(OSError):
                worker.channel.close()
        deadline = time.monotonic() + _GRACE
        for worker in workers:
            process = worker.process
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.terminate()
                process.join(0.5)
            if process.is_alive():
                process.kill()
                process.join()
            with contextlib.suppress(ValueError):
                process.close()
