"""Groups whose processes are on several hosts: Gloo between them, shared memory within each.

Reductions and broadcasts go through the first process of each host: a reduction in the host's shared memory, one between the hosts, a
broadcast in shared memory. Everything else goes through Gloo directly. `FLAMBEAU_HOST` gives processes of one machine the
names of several hosts, for tests.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import socket
from typing import Any

import flambeau
from flambeau import _distributed as native
from flambeau.distributed._exchange import (
    ExchangeGroup,
    average,
    bytes_of,
    deliver,
    dense,
    pointer,
    recording,
    run_message,
)
from flambeau.distributed._stores import Store

__all__ = ["HostsGroup"]

_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_long)
_GET = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), ctypes.c_long)
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
    return _gloo().fl_gloo_error().decode()


class HostsGroup(ExchangeGroup):
    """The native side of a group on several hosts."""

    def __init__(
        self, store: Store, rank: int, size: int, name: str, timeout: int, hosts: list[str], local: Any
    ) -> None:
        super().__init__(rank, size, name)
        order = list(dict.fromkeys(hosts))
        self._host_of = [order.index(host) for host in hosts]
        self._local_rank_of = [hosts[:i].count(host) for i, host in enumerate(hosts)]
        self._host, self._is_leader = self._host_of[rank], self._local_rank_of[rank] == 0
        self._local = local
        self._all = _Link(store, "all", rank, size, timeout)
        self._leaders = _Link(store, "leaders", self._host, len(order), timeout) if self._is_leader else None

    def _barrier(self, limit: int) -> None:
        self._all.call("barrier", timeout=limit)

    def _gathered(self, tensor: Any, limit: int) -> Any:
        whole = tensor.new_empty(self._size * tensor.numel())
        sizes = (ctypes.c_long * self._size)(*[bytes_of(tensor)] * self._size)
        count = ctypes.c_long(bytes_of(tensor))
        self._all.call("all_gather", pointer(tensor), count, pointer(whole), sizes, timeout=limit)
        return whole

    def _broadcast(self, values: Any, root: int, limit: int) -> None:
        host = self._host_of[root]
        if self._host == host:
            self._local.broadcast(values, self._local_rank_of[root], False, limit)
        if self._leaders is not None:
            arguments = (pointer(values), ctypes.c_long(bytes_of(values)), host)
            self._leaders.call("broadcast", *arguments, timeout=limit)
        if self._host != host:
            self._local.broadcast(values, 0, False, limit)

    def _reduced(self, tensor: Any, reduction: int, limit: int) -> Any:
        values = dense(tensor).clone()
        kind = _SUM if reduction == _AVERAGE else int(reduction)
        self._local.reduce(values, 0, kind, False, limit)
        if self._leaders is not None and values.numel():
            name = str(values.dtype).rpartition(".")[2].encode()
            arguments = (pointer(values), ctypes.c_long(values.numel()), name, kind)
            self._leaders.call("all_reduce", *arguments, timeout=limit)
        self._local.broadcast(values, 0, False, limit)
        if reduction == _AVERAGE:
            average(values, self._size)
        return values

    def _exchanged(
        self, sent: Any, sent_sizes: list[int], received: Any, received_sizes: list[int], limit: int
    ) -> None:
        outgoing, incoming = (ctypes.c_long * self._size)(*sent_sizes), (ctypes.c_long * self._size)(*received_sizes)
        self._all.call("all_to_all", pointer(sent), outgoing, pointer(received), incoming, timeout=limit)

    # ------------------------------------------------------------------------------------ messages

    def _message(self, is_send: bool, tensor: Any, peers: list[int], tag: int, is_async: bool, limit: int) -> Any:
        values = dense(tensor)
        slot = ctypes.c_uint64((tag & ((1 << 40) - 1)) | 1 << 41)
        library, count = _gloo(), ctypes.c_long(bytes_of(values))
        link = ctypes.c_void_p(self._all.handle)
        if is_send:
            handle = library.fl_gloo_send(link, pointer(values), count, peers[0], slot)
        else:
            sources = (ctypes.c_int * len(peers))(*peers)
            handle = library.fl_gloo_receive(link, pointer(values), count, sources, len(peers), slot)
        what = "send" if is_send else "recv"
        record = recording(f"gloo:{what}", tensor)
        if not handle:
            raise native.DistBackendError(f"[{what}] expected a message between hosts, got: {_reason()}")

        def action() -> int:
            source = ctypes.c_int(-1)
            status = library.fl_gloo_wait(ctypes.c_void_p(handle), is_send, ctypes.c_long(limit), ctypes.byref(source))
            if status:
                raise native.DistBackendError(f"[{what}] expected a message with ranks {peers}, got: {_reason()}")
            if not is_send:
                deliver(tensor, values)
            record()
            return source.value

        return run_message(action, is_async)

    def send(self, tensor: Any, to: int, tag: int, is_async: bool, limit: int) -> Any:
        return self._message(True, tensor, [to], tag, is_async, limit)

    def receive(self, tensor: Any, source: int, tag: int, is_async: bool, limit: int) -> Any:
        peers = [source] if source >= 0 else [rank for rank in range(self._size) if rank != self._rank]
        return self._message(False, tensor, peers, tag, is_async, limit)

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
