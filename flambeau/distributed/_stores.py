"""Stores of keys and values that processes meet at; with one process they are dictionaries."""

from __future__ import annotations

import datetime
from typing import Any

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]


class Store:
    """Keys and values kept in this process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self.timeout = datetime.timedelta(minutes=5)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        """The value of a key; nobody else could set it later, so a missing one is an error at once."""
        if key not in self._values:
            raise RuntimeError(f"[Store.get] expected a key that was set, got {key!r}")
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def append(self, key: str, value: Any) -> None:
        self._values[key] = self._values.get(key, b"") + (value.encode() if isinstance(value, str) else bytes(value))

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        if self._values.get(key, b"" if expected_value == "" else None) == expected_value.encode():
            self._values[key] = desired_value.encode()
        return self._values.get(key, expected_value.encode())

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        for key in keys:
            self.get(key)

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.timeout = timeout


class HashStore(Store):
    """A store in memory."""


class FileStore(Store):
    """A store that other processes would find at a path."""

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = file_name


class TCPStore(Store):
    """A store that other processes would find at an address."""

    def __init__(
        self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False, **options: Any
    ) -> None:
        super().__init__()
        if not is_master:
            raise NotImplementedError(
                "[TCPStore] expected is_master=True, got a store of another process, which is not written yet"
            )
        self.host, self.port = host_name, port


class PrefixStore(Store):
    """A store that puts a prefix before the keys of another."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self._prefix, self.underlying_store = prefix, store

    def set(self, key: str, value: Any) -> None:
        self.underlying_store.set(f"{self._prefix}/{key}", value)

    def get(self, key: str) -> bytes:
        return self.underlying_store.get(f"{self._prefix}/{key}")

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(f"{self._prefix}/{key}", amount)

    def check(self, keys: list[str]) -> bool:
        return self.underlying_store.check([f"{self._prefix}/{key}" for key in keys])

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        self.underlying_store.wait([f"{self._prefix}/{key}" for key in keys])

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(f"{self._prefix}/{key}")
