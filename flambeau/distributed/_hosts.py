"""Groups whose processes are on several hosts: Gloo between them, shared memory within each.

Reductions and broadcasts go through the first process of each host: a reduction in the host's shared memory, one between the hosts, a
broadcast in shared memory. Everything else goes through Gloo directly. `HostsGroup` has the methods of the native group of one host
(`csrc/distributed/process_group.h`), so the rest of the package does not know the difference.

Before data is exchanged, ranks compare what they are about to run, as on one host. `FLAMBEAU_HOST` gives processes of one machine the
names of several hosts, for tests.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed._stores import Store

__all__ = ["HostsGroup"]

_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_long)
_GET = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_long)
_DESCRIPTION = 160  # bytes in which ranks say what they are about to run
_SUM, _AVERAGE = 0, 1
_library: Any = None


def _gloo() -> Any:
    """The library over Gloo, opened when it is first needed."""
    global _library
    if _library is None:
        path = pathlib.Path(flambeau.__file__).parent / "libflambeau_gloo.so"
        if not path.exists():
            raise NotImplementedError(
                "[init_process_group] expected processes of one host, got several hosts: that needs Gloo, which was not "
                "there when flambeau was built (Debian's package libgloo-dev)"
            )
        _library = ctypes.CDLL(str(path))
        _library.fl_gloo_error.restype = ctypes.c_char_p
        for name in ("open", "send", "receive"):
            getattr(_library, f"fl_gloo_{name}").restype = ctypes.c_void_p
    return _library


def _address() -> str:
    """An address of this host that others reach: the one from which the meeting point is reached."""
    master = os.environ.get("MASTER_ADDR")
    if master:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((master, int(os.environ.get("MASTER_PORT", "1")) or 1))
                return str(probe.getsockname()[0])
            except OSError:
                pass
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


class _Link:
    """A Gloo context: every process connected to every other."""

    def __init__(self, store: Store, prefix: str, rank: int, size: int, timeout: int) -> None:
        library = _gloo()

        def put(key: bytes, data: Any, count: int) -> int:
            try:
                store.set(f"{prefix}/{key.decode()}", ctypes.string_at(data, count))
                return 0
            except Exception:
                return -1

        def get(key: bytes, data: Any, room: int) -> int:
            try:
                value = store.get(f"{prefix}/{key.decode()}")
            except Exception:
                return -1
            if len(value) > room:
                return -1
            ctypes.memmove(data, value, len(value))
            return len(value)

        self._callbacks = (_SET(put), _GET(get))
        self.rank, self.size, self._tag = rank, size, 0
        self.handle = library.fl_gloo_open(_address().encode(), rank, size, ctypes.c_long(timeout), *self._callbacks)
        if not self.handle:
            raise native.DistNetworkError(f"[init_process_group] expected a connection by Gloo, got: {_reason()}")

    def call(self, name: str, *arguments: Any, timeout: int) -> None:
        self._tag = (self._tag + 1) % (1 << 30)
        status = getattr(_gloo(), f"fl_gloo_{name}")(
            ctypes.c_void_p(self.handle), *arguments, ctypes.c_uint(self._tag), ctypes.c_long(timeout)
        )
        if status:
            raise native.DistBackendError(f"[{name}] expected an exchange between hosts, got: {_reason()}")

    def close(self) -> None:
        handle, self.handle = self.handle, None
        if handle:
            _gloo().fl_gloo_close(ctypes.c_void_p(handle))


def _reason() -> str:
    return _gloo().fl_gloo_error().decode()  # type: ignore[no-any-return]


def _pointer(tensor: Any) -> Any:
    return ctypes.c_void_p(tensor.data_ptr() if tensor.numel() else 0)


def _bytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()  # type: ignore[no-any-return]


def _dense(tensor: Any) -> Any:
    """A dense CPU tensor that stands for another; the same one when it is one."""
    return tensor.detach().cpu().contiguous()


def _deliver(to: Any, source: Any) -> None:
    if to.data_ptr() != source.data_ptr() or to.device != source.device:
        with flambeau.no_grad():
            to.copy_(source.view(to.shape))


def _sizes(tensors: list[Any]) -> Any:
    return (ctypes.c_long * len(tensors))(*map(_bytes, tensors))


class _Task:
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
            raise native.DistBackendError(f"[wait] Timed out waiting {timeout}ms for an operation between hosts")
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


class HostsGroup:
    """The native side of a group on several hosts."""

    def __init__(
        self, store: Store, rank: int, size: int, name: str, timeout: int, hosts: list[str], local: Any
    ) -> None:
        order = list(dict.fromkeys(hosts))
        self._rank, self._size, self._name = rank, size, name
        self._host_of = [order.index(host) for host in hosts]
        self._local_rank_of = [hosts[:i].count(host) for i, host in enumerate(hosts)]
        self._host, self._is_leader = self._host_of[rank], self._local_rank_of[rank] == 0
        self._local = local
        self._all = _Link(store, "all", rank, size, timeout)
        self._leaders = _Link(store, "leaders", self._host, len(order), timeout) if self._is_leader else None
        self._queue: queue.Queue[_Task | None] = queue.Queue()
        self._pending, self._sequence, self._lock = 0, 0, threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._recent: list[tuple[int, str, int, int]] = []
        self._moved = 0

    # ------------------------------------------------------------------------------------ running

    def _run(self, what: str, tensor: Any, is_async: bool, limit: int, body: Callable[[], Any]) -> Any:
        """Runs a collective in the order of calls: on the caller's thread when nothing is queued."""

        def action() -> None:
            self._exchange(what, tensor, limit, body)

        if not is_async and self._pending == 0:
            action()
            return None
        task = _Task(action)
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
        self._moved += 0 if tensor is None else _bytes(tensor)
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

    def _gathered(self, tensor: Any, limit: int) -> Any:
        """The tensors of all ranks, equally large, one after the other."""
        whole = tensor.new_empty(self._size * tensor.numel())
        sizes = (ctypes.c_long * self._size)(*[_bytes(tensor)] * self._size)
        count = ctypes.c_long(_bytes(tensor))
        self._all.call("all_gather", _pointer(tensor), count, _pointer(whole), sizes, timeout=limit)
        return whole

    # ------------------------------------------------------------------------------------ collectives

    def barrier(self, is_async: bool, limit: int) -> Any:
        return self._run("barrier", None, is_async, limit, lambda: self._all.call("barrier", timeout=limit))

    def _broadcast(self, dense: Any, root: int, limit: int) -> None:
        host = self._host_of[root]
        if self._host == host:
            self._local.broadcast(dense, self._local_rank_of[root], False, limit)
        if self._leaders is not None:
            arguments = (_pointer(dense), ctypes.c_long(_bytes(dense)), host)
            self._leaders.call("broadcast", *arguments, timeout=limit)
        if self._host != host:
            self._local.broadcast(dense, 0, False, limit)

    def broadcast(self, tensor: Any, root: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            dense = _dense(tensor)
            self._broadcast(dense, root, limit)
            _deliver(tensor, dense)

        return self._run(f"broadcast root={root}", tensor, is_async, limit, body)

    def _reduced(self, tensor: Any, reduction: int, limit: int) -> Any:
        """The reduction of all ranks' tensors, in new memory."""
        dense = _dense(tensor).clone()
        kind = _SUM if reduction == _AVERAGE else int(reduction)
        self._local.reduce(dense, 0, kind, False, limit)
        if self._leaders is not None and dense.numel():
            name = str(dense.dtype).rpartition(".")[2].encode()
            arguments = (_pointer(dense), ctypes.c_long(dense.numel()), name, kind)
            self._leaders.call("all_reduce", *arguments, timeout=limit)
        self._local.broadcast(dense, 0, False, limit)
        if reduction == _AVERAGE:
            whole = dense.dtype.is_floating_point or dense.dtype.is_complex
            dense.div_(self._size) if whole else dense.div_(self._size, rounding_mode="trunc")
        return dense

    def all_reduce(self, tensor: Any, reduction: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            _deliver(tensor, self._reduced(tensor, reduction, limit))

        return self._run(f"all_reduce op={int(reduction)}", tensor, is_async, limit, body)

    def reduce(self, tensor: Any, root: int, reduction: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            result = self._reduced(tensor, reduction, limit)
            if self._rank == root:
                _deliver(tensor, result)

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
        parts = self._gathered(_dense(tensor).view(-1), limit).chunk(self._size) if tensor.numel() else []
        for place, part in zip(to, parts):
            _deliver(place, part)

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
            _deliver(tensor, rooms[root])

        return self._run(f"scatter root={root}", tensor, is_async, limit, body)

    def reduce_scatter(self, tensor: Any, inputs: list[Any], reduction: int, is_async: bool, limit: int) -> Any:
        def body() -> None:
            stacked = flambeau.cat([_dense(one).view(-1) for one in inputs])
            result = self._reduced(stacked, reduction, limit)
            _deliver(tensor, result.chunk(self._size)[self._rank] if result.numel() else result)

        return self._run(f"reduce_scatter op={int(reduction)}", tensor, is_async, limit, body)

    def all_to_all(self, to: list[Any], inputs: list[Any], is_async: bool, limit: int) -> Any:
        return self._run("all_to_all", None, is_async, limit, lambda: self._swap(to, inputs, limit))

    def _swap(self, to: list[Any], inputs: list[Any], limit: int) -> None:
        """Tensor j of each rank goes to rank j; sizes may differ."""
        sent = flambeau.cat([_dense(one).view(-1) for one in inputs])
        received = sent.new_empty(sum(one.numel() for one in to))
        arguments = (_pointer(sent), _sizes(inputs), _pointer(received), _sizes(to))
        self._all.call("all_to_all", *arguments, timeout=limit)
        for place, part in zip(to, received.split([one.numel() for one in to])):
            if place.numel():
                _deliver(place, part)

    # ------------------------------------------------------------------------------------ messages

    def _message(self, is_send: bool, tensor: Any, peers: list[int], tag: int, is_async: bool, limit: int) -> Any:
        dense = _dense(tensor)
        slot = ctypes.c_uint64((tag & ((1 << 40) - 1)) | 1 << 41)
        library, count = _gloo(), ctypes.c_long(_bytes(dense))
        link = ctypes.c_void_p(self._all.handle)
        if is_send:
            handle = library.fl_gloo_send(link, _pointer(dense), count, peers[0], slot)
        else:
            sources = (ctypes.c_int * len(peers))(*peers)
            handle = library.fl_gloo_receive(link, _pointer(dense), count, sources, len(peers), slot)
        what = "send" if is_send else "recv"
        if not handle:
            raise native.DistBackendError(f"[{what}] expected a message between hosts, got: {_reason()}")

        def action() -> int:
            source = ctypes.c_int(-1)
            status = library.fl_gloo_wait(ctypes.c_void_p(handle), is_send, ctypes.c_long(limit), ctypes.byref(source))
            if status:
                raise native.DistBackendError(f"[{what}] expected a message with ranks {peers}, got: {_reason()}")
            if not is_send:
                _deliver(tensor, dense)
            return source.value

        task = _Task(action)
        if is_async:
            threading.Thread(target=task.run, name="message", daemon=True).start()
            return task
        task.run()
        task.wait(-1)
        return task

    def send(self, tensor: Any, to: int, tag: int, is_async: bool, limit: int) -> Any:
        return self._message(True, tensor, [to], tag, is_async, limit)

    def receive(self, tensor: Any, source: int, tag: int, is_async: bool, limit: int) -> Any:
        peers = [source] if source >= 0 else [rank for rank in range(self._size) if rank != self._rank]
        return self._message(False, tensor, peers, tag, is_async, limit)

    # ------------------------------------------------------------------------------------ questions

    def sequence(self) -> int:
        return self._sequence

    def recent(self) -> list[tuple[int, str, int, int]]:
        return self._recent

    def status(self) -> list[tuple[Any, ...]]:
        """What is known here of each rank: only this one's own progress."""
        own = self._recent[-1][1] if self._recent else "no collective yet"
        return [
            (os.getpid(), self._sequence, own, self._moved, 0.0, "") if rank == self._rank else (0, 0, "on another host", 0, 0.0, "")
            for rank in range(self._size)
        ]  # fmt: skip

    def stacks(self) -> str:
        return str(self._local.stacks())

    def write_stacks_to(self, descriptor: int) -> None:
        self._local.write_stacks_to(descriptor)

    def _close_links(self) -> None:
        self._local.close()
        self._all.close()
        if self._leaders is not None:
            self._leaders.close()

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(5)
            self._thread = None
        self._close_links()
