"""Stores of keys and values at which processes meet: in memory, in a file, behind a socket.

A native store answers commands (`csrc/distributed/store.h`); the classes here give them the names that programs use.
"""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from typing import Any

from flambeau import _distributed as native

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]

(_SET, _GET, _WAIT, _CHECK, _ADD, _COMPARE_SET, _APPEND, _DELETE, _COUNT, _KEYS, _PUSH, _POP, _LENGTH) = range(13)
_DEFAULT_TIMEOUT = datetime.timedelta(seconds=300)


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"[Store] expected str or bytes, got {type(value).__name__}")


def milliseconds(timeout: datetime.timedelta | float) -> int:
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    return max(0, int(seconds * 1000))


class Store:
    """Keys and values; `get` and `wait` block until a key is there or the timeout is over."""

    _native: Any = None

    def __init__(self) -> None:
        self._timeout = _DEFAULT_TIMEOUT

    def _call(self, command: int, *fields: Any, timeout: Any = None) -> list[bytes]:
        if self._native is None:
            raise NotImplementedError(f"[Store] expected a store with this method, got {type(self).__name__}")
        limit = self.timeout if timeout is None else timeout
        return self._native.call(command, [_bytes(field) for field in fields], milliseconds(limit))

    @property
    def timeout(self) -> datetime.timedelta:
        return getattr(self, "_timeout", _DEFAULT_TIMEOUT)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: Any) -> None:
        self._call(_SET, key, value)

    def get(self, key: str) -> bytes:
        return self._call(_GET, key)[0]

    def add(self, key: str, amount: int) -> int:
        return int(self._call(_ADD, key, str(int(amount)))[0])

    def append(self, key: str, value: Any) -> None:
        self._call(_APPEND, key, value)

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self._call(_COMPARE_SET, key, expected_value, desired_value)[0]

    def check(self, keys: Sequence[str]) -> bool:
        return self._call(_CHECK, *keys)[0] == b"1"

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        self._call(_WAIT, *keys, timeout=timeout)

    def delete_key(self, key: str) -> bool:
        return self._call(_DELETE, key)[0] == b"1"

    def num_keys(self) -> int:
        return int(self._call(_COUNT)[0])

    def list_keys(self) -> list[str]:
        return [key.decode() for key in self._call(_KEYS)]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._call(_GET, *keys)

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        if len(keys) != len(values):
            raise ValueError(f"[Store.multi_set] expected as many values as keys, got {len(values)} and {len(keys)}")
        self._call(_SET, *(field for pair in zip(keys, values) for field in pair))

    def has_extended_api(self) -> bool:
        return self._native is not None

    def queue_push(self, key: str, value: Any) -> None:
        self._call(_PUSH, key, value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._call(_POP, key, timeout=None if block else 0.0)[0]

    def queue_len(self, key: str) -> int:
        return int(self._call(_LENGTH, key)[0])

    def barrier(self, key: str, world_size: int, timeout: Any = None) -> None:
        """Returns when it was called `world_size` times with the key."""
        if self.add(f"{key}/arrived", 1) >= world_size:
            self.set(f"{key}/all", "1")
        self.wait([f"{key}/all"], timeout or self.timeout)

    def clone(self) -> Store:
        return self


class HashStore(Store):
    """A store in the memory of this process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._native = native.hash_store()


class FileStore(Store):
    """A store in a file that processes of one machine, or of one shared file system, open. The last to close it removes it."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self._path, self._pid, self._removes = os.fspath(file_name), os.getpid(), world_size >= 0
        self._native = native.file_store(self._path)
        self._call(_ADD, "/file/open", "1")

    @property
    def path(self) -> str:
        return self._path

    def __del__(self) -> None:
        if self._native is not None and self._pid == os.getpid():
            try:
                left = int(self._call(_ADD, "/file/open", "-1")[0])
                if left == 0 and self._removes and os.path.exists(self._path):
                    os.unlink(self._path)
            except Exception:  # the interpreter may be going down
                pass


class TCPStore(Store):
    """A store behind a socket. One process is the master and holds it; port 0 lets the system choose a free one."""

    def __init__(
        self,
        host_name: str,
        port: int = 0,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: datetime.timedelta = _DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        if not 0 <= int(port) <= 65535:
            raise ValueError(f"[TCPStore] expected a port from 0 to 65535, got {port}")
        if world_size == 0:
            raise ValueError(
                "[TCPStore] expected a positive number of processes or None, got 0: TCPStore world size cannot be 0"
            )
        self._timeout = timeout
        self.host = host_name
        self.is_master = bool(is_master)
        self._use_libuv = bool(use_libuv)
        listening = -1 if master_listen_fd is None else master_listen_fd
        # Under a launcher that holds the store itself, the master is one more client of it.
        held = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") in ("1", "True") and os.environ.get("MASTER_PORT") == str(
            port
        )
        serves = self.is_master and not (held and int(port))
        self._native = native.tcp_store(
            host_name, int(port), serves, bool(multi_tenant), listening, milliseconds(timeout)
        )
        self._world_size = world_size
        if wait_for_workers and world_size is not None and world_size > 0:
            self._meet(world_size)

    def _meet(self, world_size: int) -> None:
        """The master returns when all workers have connected."""
        count = self.add("init/", 1)
        until = time.monotonic() + self.timeout.total_seconds()
        while self.is_master and count < world_size:
            if time.monotonic() > until:
                raise native.DistStoreError(
                    f"[TCPStore] Timed out after {self.timeout.total_seconds():.0f} seconds waiting for clients. "
                    f"{count}/{world_size} clients joined."
                )
            time.sleep(0.005)
            count = int(self.get("init/"))

    @property
    def port(self) -> int:
        return self._native.port()

    @property
    def libuvBackend(self) -> bool:
        """What was asked for; there is one server."""
        return self._use_libuv

    def clone(self) -> TCPStore:
        """Another connection to the same store, for another thread."""
        other = TCPStore(self.host, self.port, None, False, self.timeout, wait_for_workers=False)
        return other

    def __repr__(self) -> str:
        return f"TCPStore(host={self.host!r}, port={self.port}, is_master={self.is_master})"


class PrefixStore(Store):
    """A store that puts a prefix before the keys of another."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self._prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store = self._store
        while isinstance(store, PrefixStore):
            store = store._store
        return store

    @property
    def timeout(self) -> datetime.timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._store.set_timeout(timeout)

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def _all(self, keys: Sequence[str]) -> list[str]:
        return [self._key(key) for key in keys]

    def set(self, key: str, value: Any) -> None:
        self._store.set(self._key(key), value)

    def get(self, key: str) -> bytes:
        return self._store.get(self._key(key))

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._key(key), amount)

    def append(self, key: str, value: Any) -> None:
        self._store.append(self._key(key), value)

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self._store.compare_set(self._key(key), expected_value, desired_value)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(self._all(keys))

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        if timeout is None:
            self._store.wait(self._all(keys))
        else:
            self._store.wait(self._all(keys), timeout)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(self._key(key))

    def num_keys(self) -> int:
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        head = f"{self._prefix}/"
        return [key[len(head) :] for key in self._store.list_keys() if key.startswith(head)]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self._store.multi_get(self._all(keys))

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self._store.multi_set(self._all(keys), values)

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    def queue_push(self, key: str, value: Any) -> None:
        self._store.queue_push(self._key(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self._store.queue_pop(self._key(key), block)

    def queue_len(self, key: str) -> int:
        return self._store.queue_len(self._key(key))

    def clone(self) -> PrefixStore:
        return PrefixStore(self._prefix, self._store.clone())
