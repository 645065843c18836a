"""The agent of one worker: a listening socket, one connection to each other worker, and threads that answer requests.

A message is a length and a pickled tuple (kind, number, content). Requests run on threads of their own, so that a function may call
back without a deadlock; messages about references are handled in the order in which they arrive on a connection.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.distributed._stores import Store
from flambeau.futures import Future

__all__ = ["Agent", "RemoteException", "WorkerInfo", "agent"]


class WorkerInfo(NamedTuple):
    """A worker: its name and its number."""

    name: str
    id: int

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, name={self.name})"


class RemoteException(NamedTuple):
    """What went wrong on another worker."""

    msg: str
    exception_type: Any


def _unpack(failure: RemoteException) -> BaseException:
    """The exception to raise here: of the same class where that can be made of a message."""
    text = failure.msg.encode("utf-8").decode("unicode_escape") if "\\n" in failure.msg else failure.msg
    try:
        return failure.exception_type(text)
    except Exception:
        return RuntimeError(f"{failure.exception_type.__name__}: {text}")


class _Call:
    """A request that has not been answered."""

    def __init__(self, target: WorkerInfo) -> None:
        self.future: Any = Future()
        self.target, self.timer = target, None
        self._lock, self._done = threading.Lock(), False

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        with self._lock:
            if self._done:
                return
            self._done = True
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()
        self.future.set_exception(error) if error is not None else self.future.set_result(value)


class Agent:
    """Sends requests to other workers and answers theirs."""

    def __init__(self, name: str, rank: int, world_size: int, store: Store, address: str, timeout: float) -> None:
        self.info, self.world_size, self.store, self.timeout = WorkerInfo(name, rank), world_size, store, timeout
        self._listener = socket.create_server((address, 0), backlog=world_size + 8)
        self.handlers: dict[str, Callable[[Any, int], Any]] = {}
        self.immediate: dict[str, Callable[[Any, int], None]] = {}
        self.sent = self.answered = 0
        self._calls: dict[int, _Call] = {}
        self._number, self._lock, self._open = 0, threading.Lock(), True
        self._connections: dict[int, tuple[socket.socket, threading.Lock]] = {}
        store.set(f"worker{rank}", pickle.dumps((name, self._listener.getsockname())))
        self.workers: list[WorkerInfo] = []
        self._addresses: list[Any] = []
        for other in range(world_size):
            other_name, where = pickle.loads(store.get(f"worker{other}"))
            self.workers.append(WorkerInfo(other_name, other))
            self._addresses.append(where)
        if len({worker.name for worker in self.workers}) != world_size:
            raise RuntimeError(f"[init_rpc] expected names without duplicates, got {[w.name for w in self.workers]}")
        threading.Thread(target=self._accept, name="rpc-accept", daemon=True).start()

    # ------------------------------------------------------------------------------------ workers

    def worker(self, to: Any) -> WorkerInfo:
        if isinstance(to, WorkerInfo):
            return to
        for worker in self.workers:
            if worker.name == to or worker.id == to:
                return worker
        raise RuntimeError(
            f"[rpc] expected one of {[w.name for w in self.workers]}, got unknown destination worker {to}"
        )

    # ------------------------------------------------------------------------------------ sending

    def _connection(self, rank: int) -> tuple[socket.socket, threading.Lock]:
        with self._lock:
            if rank not in self._connections:
                opened = socket.create_connection(self._addresses[rank], timeout=30)
                opened.settimeout(None)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[rank] = (opened, threading.Lock())
                opened.sendall(struct.pack("<q", self.info.id))
                threading.Thread(target=self._read, args=(opened, rank), name="rpc-read", daemon=True).start()
            return self._connections[rank]

    def _send(self, connection: tuple[socket.socket, threading.Lock], message: tuple[str, int, Any]) -> None:
        data = pickle.dumps(message, protocol=5)
        with connection[1]:
            connection[0].sendall(struct.pack("<q", len(data)) + data)

    def tell(self, rank: int, kind: str, content: Any) -> None:
        """A message that is not answered; the order of such messages to a worker is kept."""
        if not self._open:
            return
        if rank == self.info.id:
            self.immediate[kind](content, rank)
        else:
            self._send(self._connection(rank), (kind, -1, content))

    def call(self, target: WorkerInfo, kind: str, content: Any, timeout: float | None = None) -> Any:
        """A request; returns the future of its answer."""
        if not self._open:
            raise RuntimeError("[rpc] expected a running agent, got one that was shut down")
        call = _Call(target)
        with self._lock:
            number = self._number
            self._number += 1
            self._calls[number] = call
            self.sent += 1
        limit = self.timeout if timeout is None or timeout < 0 else timeout
        if limit > 0:
            call.timer = threading.Timer(limit, self._expire, (number, limit))  # type: ignore[assignment]
            call.timer.daemon = True
            call.timer.start()
        if target.id == self.info.id:
            # Arguments are copied as they would be on the way to another worker.
            local = pickle.loads(pickle.dumps((kind, number, content), protocol=5))
            self._begin(*local, rank=target.id, reply=lambda answer: self._answered(number, answer))  # type: ignore[misc]
            return call.future
        try:
            self._send(self._connection(target.id), (kind, number, content))
        except OSError as error:
            self._take(number)
            call.finish(error=RuntimeError(f"[rpc] expected a connection to {target.name}, got: {error}"))
        except BaseException:
            self._take(number)
            raise
        return call.future

    def _take(self, number: int) -> _Call | None:
        with self._lock:
            call = self._calls.pop(number, None)
            if call is not None:
                self.answered += 1
            return call

    def _expire(self, number: int, limit: float) -> None:
        call = self._take(number)
        if call is not None:
            milliseconds = int(limit * 1000)
            call.finish(
                error=RuntimeError(
                    f"[rpc] RPC ran for more than set timeout ({milliseconds} ms) and will now be marked with an error"
                )
            )

    # ------------------------------------------------------------------------------------ receiving

    def _accept(self) -> None:
        while self._open:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            header = _exactly(connection, 8)
            if header is not None:
                rank = struct.unpack("<q", header)[0]
                threading.Thread(target=self._read, args=(connection, rank), name="rpc-read", daemon=True).start()

    def _read(self, connection: socket.socket, rank: int) -> None:
        pair = (connection, threading.Lock())
        while True:
            header = _exactly(connection, 8)
            data = None if header is None else _exactly(connection, struct.unpack("<q", header)[0])
            if data is None:
                self._lost(rank)
                return
            try:
                kind, number, content = pickle.loads(data)
            except Exception as error:
                self._unreadable(data, error, pair)
                continue
            if kind == "answer":
                self._answered(number, content)
            else:
                self._begin(
                    kind,
                    number,
                    content,
                    rank,
                    lambda answer, n=number: self._send(pair, ("answer", n, answer)),  # type: ignore[misc]
                )

    def _unreadable(self, data: bytes, error: Exception, pair: tuple[socket.socket, threading.Lock]) -> None:
        """A message whose content cannot be read here: the caller is told, not left waiting."""
        number = _number_of(data)
        if number is None:
            return
        failure = RemoteException(f"On {self.info}: {type(error).__name__}: {error}", type(error))
        self._send(pair, ("answer", number, (False, failure)))

    def _begin(self, kind: str, number: int, content: Any, rank: int, reply: Callable[[Any], None]) -> None:
        if kind in self.immediate:
            self.immediate[kind](content, rank)
        if number >= 0:
            threading.Thread(target=self._serve, args=(kind, content, rank, reply), name="rpc", daemon=True).start()

    def _serve(self, kind: str, content: Any, rank: int, reply: Callable[[Any], None]) -> None:
        try:
            result = self.handlers[kind](content, rank)
        except BaseException as error:
            reply((False, self.describe(error)))
            return
        if isinstance(result, Future):
            result.add_done_callback(lambda done: self._reply_later(done, reply))
            return
        self._reply(reply, result)

    def _reply(self, reply: Callable[[Any], None], value: Any) -> None:
        try:
            reply((True, value))
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            reply((False, self.describe(error)))
        except OSError:
            pass  # the caller is gone

    def _reply_later(self, done: Any, reply: Callable[[Any], None]) -> None:
        try:
            value = done.value()
        except BaseException as error:
            reply((False, self.describe(error)))
            return
        self._reply(reply, value)

    def describe(self, error: BaseException) -> RemoteException:
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return RemoteException(f"On {self.info}:\n{error!r}\n{lines}", type(error))

    def _answered(self, number: int, answer: tuple[bool, Any]) -> None:
        call = self._take(number)
        if call is None:
            return
        ok, value = answer
        call.finish(value) if ok else call.finish(error=_unpack(value))

    def _lost(self, rank: int) -> None:
        """The other side of a connection is gone: what waits for it fails."""
        if not self._open:
            return
        with self._lock:
            self._connections.pop(rank, None)
            waiting = [number for number, call in self._calls.items() if call.target.id == rank]
        for number in waiting:
            call = self._take(number)
            if call is not None:
                call.finish(
                    error=RuntimeError(f"[rpc] expected an answer of {call.target.name}, got a closed connection")
                )

    # ------------------------------------------------------------------------------------ end

    def settle(self, timeout: float) -> None:
        """Waits until no worker has unanswered requests: twice the same counts of all, with nothing under way."""
        until, turn, before = time.monotonic() + timeout, 0, ""
        while time.monotonic() < until:
            while self._calls and time.monotonic() < until:
                time.sleep(0.002)
            self.store.set(f"settle/{turn}/{self.info.id}", f"{self.sent} {self.answered}")
            told = [self.store.get(f"settle/{turn}/{rank}").decode() for rank in range(self.world_size)]
            counts = " ".join(told)
            quiet = all(len(set(one.split(" "))) == 1 for one in told)
            turn += 1
            if quiet and counts == before:
                return
            before = counts

    def close(self) -> None:
        self._open = False
        self._listener.close()
        with self._lock:
            connections, self._connections = list(self._connections.values()), {}
            calls, self._calls = list(self._calls.values()), {}
        for connection, _ in connections:
            connection.close()
        for call in calls:
            call.finish(error=RuntimeError("[rpc] expected an answer, got the shutdown of the agent"))


def _number_of(data: bytes) -> int | None:
    """The number of a message whose content cannot be loaded: names that are missing stand for nothing."""

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return lambda *args, **kwargs: None

    try:
        return int(Reader(io.BytesIO(data)).load()[1])
    except Exception:
        return None


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    """So many bytes, or None when the connection ended."""
    data = bytearray(count)
    view, received = memoryview(data), 0
    while received < count:
        try:
            step = connection.recv_into(view[received:])
        except OSError:
            return None
        if step == 0:
            return None
        received += step
    return bytes(data)


_agent: Agent | None = None


def agent() -> Agent:
    """The agent of this process."""
    if _agent is None:
        raise RuntimeError("[rpc] RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return _agent


def set_agent(new: Agent | None) -> None:
    global _agent
    _agent = new
