"""Deadlines for pieces of a worker's program: a worker that is not through in time is ended by its agent.

    with timer.expires(after=60, scope="step"):
        train_step()

The agent starts a server, gives its workers what they need to reach it, and each worker calls `configure` with a client.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "FileTimerClient", "FileTimerRequest", "FileTimerServer", "LocalTimerClient", "LocalTimerServer",
    "MultiprocessingRequestQueue", "RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires",
]  # fmt: skip


@dataclass(frozen=True)
class TimerRequest:
    """A worker's deadline for a scope; one below zero releases it. Two of a worker and scope are the same timer."""

    worker_id: Any
    scope_id: str
    expiration_time: float


@dataclass(frozen=True)
class FileTimerRequest:
    """A deadline as it is written to a pipe; the signal is sent to the process when it is over."""

    worker_pid: int
    scope_id: str
    expiration_time: float
    signal: int = signal.SIGKILL

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class TimerClient(abc.ABC):
    """A worker's side."""

    @abc.abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None: ...

    @abc.abstractmethod
    def release(self, scope_id: str) -> None: ...


class RequestQueue(abc.ABC):
    """How requests come to a server."""

    @abc.abstractmethod
    def size(self) -> int: ...

    @abc.abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]: ...


class MultiprocessingRequestQueue(RequestQueue):
    """Requests over a queue of `multiprocessing`."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue

    def size(self) -> int:
        return int(self._queue.qsize())

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        import queue

        requests: list[TimerRequest] = []
        until = time.monotonic() + timeout
        while len(requests) < size:
            try:
                requests.append(self._queue.get(block=True, timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                break
        return requests


class _Server:
    """Looks at deadlines now and then, on a thread."""

    def __init__(self, max_interval: float) -> None:
        self._interval = max_interval
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def _look(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="timers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._look()
            self._stopping.wait(min(self._interval, 0.1))

    def stop(self) -> None:
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(self._interval + 5)


class _Timers:
    """The deadlines that run, by worker and scope."""

    _worker_field = "worker_id"  # of requests

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timers: dict[tuple[Any, str], Any] = {}

    def register_timers(self, timer_requests: list[Any]) -> None:
        for request in timer_requests:
            key = getattr(request, self._worker_field), request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_ids: set[int]) -> None:
        self._timers = {key: request for key, request in self._timers.items() if key[0] not in worker_ids}

    def get_expired_timers(self, deadline: float) -> dict[Any, list[Any]]:
        expired: dict[Any, list[Any]] = {}
        for (worker, _), request in self._timers.items():
            if request.expiration_time <= deadline:
                expired.setdefault(worker, []).append(request)
        return expired


class TimerServer(_Server, abc.ABC):
    """The agent's side: keeps the timers of workers and ends those whose time is over."""

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        super().__init__(max_interval)
        self._request_queue, self._daemon = request_queue, daemon

    @abc.abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None: ...

    @abc.abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None: ...

    @abc.abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[str, list[TimerRequest]]: ...

    @abc.abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool: ...

    def _look(self) -> None:
        waiting = self._request_queue.size()
        self.register_timers(self._request_queue.get(max(1, waiting), self._interval if waiting == 0 else 0.0))
        for worker in self.get_expired_timers(time.time()):
            if self._reap_worker(worker):
                self.clear_timers({worker})


def _end(process: int, number: int) -> bool:
    """True when the process does not run any more."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass
    except OSError:
        return False
    return True


class LocalTimerServer(_Timers, TimerServer):
    """For workers of this host, named by their process numbers."""

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)

    def _reap_worker(self, worker_id: int) -> bool:
        return _end(worker_id, signal.SIGKILL)


class LocalTimerClient(TimerClient):
    """Sends deadlines of this process over a queue."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self._queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        self._queue.put(TimerRequest(os.getpid(), scope_id, -1))


class FileTimerClient(TimerClient):
    """Writes deadlines of this process to a named pipe."""

    def __init__(self, file_path: str, signal: int = signal.SIGKILL) -> None:
        self._path, self._signal = file_path, signal

    def _send(self, scope_id: str, expiration_time: float) -> None:
        line = FileTimerRequest(os.getpid(), scope_id, expiration_time, int(self._signal)).to_json() + "\n"
        try:
            pipe = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            raise BrokenPipeError(
                f"[FileTimerClient] expected a server that reads {self._path}, got: {error}"
            ) from error
        try:
            os.write(pipe, line.encode())
        finally:
            os.close(pipe)

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self._send(scope_id, expiration_time)

    def release(self, scope_id: str) -> None:
        self._send(scope_id, -1)


class FileTimerServer(_Timers, _Server):
    """Reads deadlines from a named pipe."""

    _worker_field = "worker_pid"

    def __init__(
        self, file_path: str, run_id: str, max_interval: float = 10, daemon: bool = True, log_event: Any = None
    ) -> None:
        super().__init__(max_interval)
        self._path, self._run_id, self._log_event = file_path, run_id, log_event
        self._rest = b""
        if os.path.exists(file_path):
            os.remove(file_path)
        os.mkfifo(file_path)
        self._pipe = os.open(file_path, os.O_RDWR | os.O_NONBLOCK)

    def _look(self) -> None:
        ready, _, _ = select.select([self._pipe], [], [], min(self._interval, 0.1))
        if ready:
            self._rest += os.read(self._pipe, 1 << 16)
        *lines, self._rest = self._rest.split(b"\n")
        self.register_timers([FileTimerRequest(**json.loads(line)) for line in lines if line])
        for worker, requests in self.get_expired_timers(time.time()).items():
            if _end(worker, requests[0].signal):
                self.clear_timers({worker})

    def stop(self) -> None:
        super().stop()
        os.close(self._pipe)
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._path)


_client: TimerClient | None = None


def configure(timer_client: TimerClient) -> None:
    """What `expires` of this process uses."""
    global _client
    _client = timer_client


@contextlib.contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """A `with` block that has to end within `after` seconds; the process is ended otherwise."""
    chosen = client or _client
    if chosen is None:
        raise RuntimeError("[timer.expires] configure timer client before using countdown timers.")
    if scope is None:
        import sys

        frame = sys._getframe(2)
        scope = f"{frame.f_code.co_filename}#{frame.f_lineno}"
    chosen.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        chosen.release(scope)
