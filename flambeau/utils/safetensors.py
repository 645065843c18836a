"""Files of named tensors in the safetensors format: a JSON table of contents, then the bytes.

The file holds nothing that could run. The table is checked before memory is touched: every tensor lies inside the file,
has the bytes its shape needs, and none overlap. Loading maps the file, so that only what is used is read.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from typing import Any

import flambeau
from flambeau import _C
from flambeau._C import Tensor

__all__ = ["SafetensorError", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]

_MAX_HEADER = 100_000_000
_DTYPES = {
    "BOOL": flambeau.bool, "U8": flambeau.uint8, "I8": flambeau.int8, "I16": flambeau.int16, "I32": flambeau.int32,
    "I64": flambeau.int64, "F16": flambeau.float16, "BF16": flambeau.bfloat16, "F32": flambeau.float32,
    "F64": flambeau.float64, "C64": flambeau.complex64,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class SafetensorError(Exception):
    """A file that is not what it should be."""


def _bad(text: str) -> SafetensorError:
    return SafetensorError(f"[safetensors] expected a valid file, got {text}")


# ---------------------------------------------------------------------------------------------- writing


def _prepare(tensors: dict[str, Tensor], metadata: dict[str, str] | None) -> tuple[bytes, list[Tensor]]:
    """The head of the file, and contiguous tensors in the order of their bytes."""
    if not isinstance(tensors, dict):
        raise ValueError(f"[safetensors] expected a dict of tensors, got {type(tensors).__name__}")
    owners: dict[int, str] = {}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"[safetensors] expected a tensor for {name!r}, got {type(tensor).__name__}")
        if tensor.dtype not in _NAMES:
            raise ValueError(f"[safetensors] expected a dtype that the format has, got {tensor.dtype} for {name!r}")
        if not tensor.is_meta and tensor.numel():
            other = owners.setdefault(tensor.untyped_storage().data_ptr(), name)
            if other != name:
                raise RuntimeError(
                    f"[safetensors] expected tensors that share no memory, got {other!r} and {name!r}; clone() one of "
                    "them, or use save_model"
                )
    # Wide elements first keep every tensor aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    table: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise ValueError("[safetensors] expected text in metadata, got other values")
        table["__metadata__"] = metadata
    at = 0
    for name in order:
        tensor = tensors[name]
        size = tensor.numel() * tensor.element_size()
        table[name] = {
            "dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + size],
        }  # fmt: skip
        at += size
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, [tensors[n].detach().cpu().contiguous() for n in order]


def _memory(tensor: Tensor) -> memoryview:
    start = tensor.storage_offset() * tensor.element_size()
    return _C._storage_memory(tensor)[start : start + tensor.numel() * tensor.element_size()]


def save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors."""
    head, ordered = _prepare(tensors, metadata)
    return b"".join([head, *(_memory(tensor) for tensor in ordered)])


def save_file(tensors: dict[str, Tensor], filename: Any, metadata: dict[str, str] | None = None) -> None:
    """Write a file, which takes the place of an old one when it is complete."""
    from flambeau.serialization import replacing

    head, ordered = _prepare(tensors, metadata)
    with replacing(filename) as sink:
        sink.reserve(len(head) + sum(t.numel() * t.element_size() for t in ordered))
        sink.write(head)
        for tensor in ordered:
            sink.write(_memory(tensor))


# ---------------------------------------------------------------------------------------------- reading


class _Entry:
    """Where a tensor lies."""

    __slots__ = ("dtype", "end", "shape", "start")

    def __init__(self, dtype: Any, shape: tuple[int, ...], start: int, end: int) -> None:
        self.dtype, self.shape, self.start, self.end = dtype, shape, start, end


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise _bad("a name that occurs twice")
    return table


def _parse(head: bytes, total: int) -> tuple[dict[str, _Entry], dict[str, str]]:
    """The table of contents, with offsets from the start of the file."""
    base = 8 + len(head)
    try:
        table = json.loads(head.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise _bad(f"a table of contents that cannot be read ({type(error).__name__})") from None
    if not isinstance(table, dict):
        raise _bad("a table of contents that is no object")
    metadata = table.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _bad("metadata that is not text")
    entries = {}
    for name, row in table.items():
        try:
            dtype, shape, (start, end) = row["dtype"], row["shape"], row["data_offsets"]
            numbers = [*shape, start, end]
        except (TypeError, KeyError, ValueError):
            raise _bad(f"an incomplete row for {name!r}") from None
        if dtype not in _DTYPES:
            raise _bad(f"a dtype {dtype!r} for {name!r} that tensors do not have here")
        if not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers) or len(shape) > 64:
            raise _bad(f"sizes for {name!r} that are no sizes")
        size = _DTYPES[dtype].itemsize
        for n in shape:
            size *= n
        if end - start != size or base + end > total:
            raise _bad(f"{name!r} with {end - start} bytes where its shape needs {size}, or outside the file")
        entries[name] = _Entry(_DTYPES[dtype], tuple(shape), base + start, base + end)
    at = base
    for entry in sorted(entries.values(), key=lambda e: (e.start, e.end)):
        if entry.start != at:
            raise _bad("tensors that overlap or leave holes")
        at = entry.end
    if at != total:
        raise _bad(f"{total - at} bytes that belong to no tensor")
    return entries, metadata


def _head(source: bytes | memoryview) -> bytes:
    if len(source) < 8:
        raise _bad(f"{len(source)} bytes")
    (size,) = struct.unpack_from("<Q", source)
    if size > _MAX_HEADER or 8 + size > len(source):
        raise _bad(f"a table of contents of {size} bytes")
    return bytes(source[8 : 8 + size])


class safe_open:
    """A file whose tensors are read when they are asked for."""

    def __init__(self, filename: Any, framework: str = "pt", device: Any = "cpu") -> None:
        import mmap

        if framework not in ("pt", "torch", "pytorch"):
            raise SafetensorError(f"[safetensors] expected framework='pt', got {framework!r}")
        self._device = flambeau.device(device)
        with open(filename, "rb") as file:
            if os.fstat(file.fileno()).st_size < 8:
                raise _bad("a file of less than 8 bytes")
            # Private: tensors may be written, the file stays as it is.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        with memoryview(self._map) as view:
            self._entries, self._metadata = _parse(_head(view), len(view))

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def metadata(self) -> dict[str, str] | None:
        return dict(self._metadata) or None

    def keys(self) -> list[str]:
        return sorted(self._entries)

    def offset_keys(self) -> list[str]:
        """Names in the order of their bytes."""
        return sorted(self._entries, key=lambda name: self._entries[name].start)

    def _entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise SafetensorError(f"[safetensors] expected the name of a tensor in the file, got {name!r}")
        return self._entries[name]

    def get_tensor(self, name: str) -> Tensor:
        tensor = _tensor_at(self._map, self._entry(name))
        return tensor if self._device.type == "cpu" else tensor.to(self._device)

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class _Slice:
    """A tensor of which a part is going to be taken."""

    def __init__(self, file: safe_open, name: str) -> None:
        self._file, self._name = file, name

    def get_shape(self) -> list[int]:
        return list(self._file._entry(self._name).shape)

    def get_dtype(self) -> str:
        return _NAMES[self._file._entry(self._name).dtype]

    def __getitem__(self, index: Any) -> Tensor:
        tensor = _tensor_at(self._file._map, self._file._entry(self._name))[index]
        return tensor.clone().to(self._file._device)


def _tensor_at(buffer: Any, entry: _Entry) -> Tensor:
    if entry.start == entry.end:
        return flambeau.empty(entry.shape, dtype=entry.dtype, device="cpu")
    address, owner = _C._buffer_address(buffer)
    raw = _C._from_pointer(owner, address + entry.start, (entry.end - entry.start,), (1,), flambeau.uint8)
    if (address + entry.start) % entry.dtype.itemsize:
        raw = raw.clone()
    return raw.view(entry.dtype).view(entry.shape)


def load_file(filename: Any, device: Any = "cpu") -> dict[str, Tensor]:
    """All tensors of a file, mapped."""
    with safe_open(filename, device=device) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def load(data: bytes) -> dict[str, Tensor]:
    """The tensors in the bytes of a file."""
    entries, _ = _parse(_head(data), len(data))
    return {name: _tensor_at(data, entry).clone() for name, entry in entries.items()}


# ---------------------------------------------------------------------------------------------- models


def save_model(model: Any, filename: Any, metadata: dict[str, str] | None = None) -> None:
    """The state of a module; of names that share memory one is written, the others are noted in the metadata."""
    state = model.state_dict()
    metadata = dict(metadata or {})
    seen: dict[Any, str] = {}
    unique = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.dtype) if tensor.numel() else name
        if place in seen:
            metadata[name] = seen[place]
        else:
            seen[place] = name
            unique[name] = tensor.contiguous()
    save_file(unique, filename, metadata or None)


def load_model(model: Any, filename: Any, strict: bool = True, device: Any = "cpu") -> tuple[list[str], list[str]]:
    """Fill a module from a file; returns names that were missing and names that were not expected."""
    with safe_open(filename, device=device) as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        for name, other in (file.metadata() or {}).items():
            if other in state and name not in state:
                state[name] = state[other]
    missing, unexpected = model.load_state_dict(state, strict=False)
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"[load_model] expected the tensors of the model, got missing {missing} and unexpected {unexpected}"
        )
    return missing, unexpected
