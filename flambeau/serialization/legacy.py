"""The format of PyTorch before 1.6: pickles one after another, then the bytes of the storages.

Old files are still around, plain pickles of PyTorch's tensors hold their storages in this format, and programs ask for
it by `_use_new_zipfile_serialization=False`. It is read by the interpreter that runs no code; what the stream promises
is compared with the bytes that are there.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

import flambeau
from flambeau import _C
from flambeau.serialization import packed_objects
from flambeau.serialization.unpickler import CONTAINERS, SafeUnpickler, StorageKind, UnpicklingError
from flambeau.storage import TypedStorage, UntypedStorage, storage_of

MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001


def is_legacy(head: bytes) -> bool:
    """Whether a file starts with the pickle of the magic number."""
    return (
        head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") and MAGIC.to_bytes(10, "little") in head[:32]
    )


def write_legacy(sink: Any, stream: Any, pickler: Any) -> None:
    """The object that a pickler wrote into a stream, and the storages it refers to."""
    machine = {"protocol_version": _VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for value in (MAGIC, _VERSION, machine):
        sink.write(pickle.dumps(value, protocol=2))
    sink.write(stream.getbuffer())
    keys = sorted(pickler.storages)
    sink.write(pickle.dumps(keys, protocol=2))
    for key in keys:
        held = pickler.storages[key].cpu()
        sink.write(struct.pack("<q", held.nbytes() // pickler.items[key]))
        sink.write(_C._storage_memory(held._bytes))
    if hasattr(sink, "flush"):
        sink.flush()


def _no_storage(reference: Any) -> Any:
    raise UnpicklingError("[load] expected plain values at the start of the file, got a storage")


class _Unread:
    """A tensor of the first reading, when the bytes of storages are not there yet."""


class _HeadUnpickler(SafeUnpickler):
    """Finds the storages of a pickle and its end. Functions build tensors from bytes, so only classes and containers are made."""

    def operations(self) -> Any:
        own = {ord("R"): _HeadUnpickler.reduce, ord("b"): _HeadUnpickler.build}
        return [own.get(code, operation) for code, operation in enumerate(super().operations())]

    def reduce(self) -> None:
        function = self._stack[-2]
        if isinstance(function, type) or function in CONTAINERS:
            return super().reduce()
        del self._stack[-2:]
        self._stack.append(_Unread())

    def build(self) -> None:
        if isinstance(self._stack[-2], (_Unread, packed_objects.PackedObject)):
            self._stack.pop()
        else:
            super().build()


def _text(value: Any) -> Any:
    """Strings of Python 2, which `encoding="bytes"` leaves as bytes."""
    return value.decode("ascii") if type(value) is bytes else value


class LegacyReader:
    """Reads a whole file of this format; every storage is read once."""

    def __init__(self, data: bytes, restore: Any, encoding: str) -> None:
        self._data, self._restore, self._encoding = data, restore, encoding
        self._storages: dict[str, UntypedStorage] = {}
        self._items: dict[str, int] = {}  # bytes of an element
        self._views: dict[str, UntypedStorage] = {}

    def _pickle(self, start: int, load_storage: Any, kind: type[SafeUnpickler] = SafeUnpickler) -> tuple[Any, int]:
        machine = kind(self._data[start:], load_storage, self._encoding)
        value = machine.load()
        return value, start + machine.position

    def load(self) -> tuple[Any, int]:
        """What was saved, and where it ends."""
        at = 0
        for expected in (MAGIC, _VERSION, dict):
            value, at = self._pickle(at, _no_storage)
            if value != expected and type(value) is not expected:
                raise UnpicklingError(f"[load] expected a checkpoint of PyTorch before 1.6, got {value!r} in its head")
        if {_text(k): v for k, v in value.items()}.get("little_endian") is False:
            raise UnpicklingError("[load] expected a file of a little-endian machine, got another one")
        start = at
        _, at = self._pickle(start, self._storage, _HeadUnpickler)  # makes the storages, whose bytes follow
        keys, at = self._pickle(at, _no_storage)
        if type(keys) is not list or sorted(str(_text(k)) for k in keys) != sorted(self._storages):
            raise UnpicklingError("[load] expected the list of storages, got other values")
        for key in keys:
            at = self._fill(_text(key), at)
        # Again, now that the bytes are there.
        return self._pickle(start, self._storage)[0], at

    def _storage(self, reference: Any) -> Any:
        if type(reference) is not tuple or len(reference) not in (5, 6) or _text(reference[0]) != "storage":
            raise UnpicklingError("[load] expected a reference to a storage, got another value")
        _, kind, key, place, count = map(_text, reference[:5])
        if not isinstance(kind, StorageKind) or type(key) is not str or type(place) is not str:
            raise UnpicklingError("[load] expected key, place and length of a storage, got other values")
        item = 1 if kind.dtype is None else kind.dtype.itemsize
        if type(count) is not int or not 0 <= count * item <= len(self._data):
            raise UnpicklingError(f"[load] expected a storage that fits into the file, got {count} elements")
        if key not in self._storages:
            memory = flambeau.empty(count * item, dtype=flambeau.uint8, device="cpu")
            self._storages[key] = storage_of(memory)
            self._items[key] = item
        storage = self._storages[key]
        if storage.nbytes() < count * item:
            raise UnpicklingError(f"[load] expected {count * item} bytes in storage {key}, got {storage.nbytes()}")
        if self._restore(UntypedStorage(0), place).device.type != "cpu":
            raise UnpicklingError("[load] expected map_location='cpu' for a checkpoint of PyTorch before 1.6")
        if len(reference) == 6 and reference[5] is not None:
            storage = self._view(storage, reference[5], item)
        return storage if kind.dtype is None else TypedStorage(wrap_storage=storage, dtype=kind.dtype, _internal=True)

    def _view(self, storage: UntypedStorage, view: Any, item: int) -> UntypedStorage:
        """Part of a storage: its name, first element and number of elements."""
        if type(view) is not tuple or len(view) != 3 or not all(type(n) is int for n in view[1:]):
            raise UnpicklingError("[load] expected name, offset and length of a view of a storage, got other values")
        name, first, count = _text(view[0]), view[1] * item, view[2] * item
        if min(first, count) < 0 or first + count > storage.nbytes():
            raise UnpicklingError(
                f"[load] expected a view inside its storage, got elements {view[1]} to {sum(view[1:])}"
            )
        return self._views.setdefault(name, storage[first : first + count])

    def _fill(self, key: str, at: int) -> int:
        storage = self._storages[key]
        size = storage.nbytes()
        if at + 8 + size > len(self._data):
            raise UnpicklingError("[load] expected the bytes of all storages, got a file that ends before")
        (count,) = struct.unpack_from("<q", self._data, at)
        if count * self._items[key] != size:
            raise UnpicklingError(f"[load] expected {size} bytes of a storage, got {count} elements")
        _C._storage_memory(storage._bytes)[:] = self._data[at + 8 : at + 8 + size]
        return at + 8 + size
