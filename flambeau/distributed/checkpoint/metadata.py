"""What a checkpoint's `.metadata` file holds: for each name the tensor's geometry and its chunks, and where each chunk lies.

The file is PyTorch's: a pickle of these classes under PyTorch's module names. Reading it makes these classes and nothing else.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any

import flambeau

__all__ = [
    "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "STATE_DICT_TYPE", "StorageMeta",
    "TensorProperties", "TensorStorageMetadata", "read_metadata", "write_metadata",
]  # fmt: skip

STATE_DICT_TYPE = dict[str, Any]


@dataclass
class ChunkStorageMetadata:
    offsets: Any
    sizes: Any


class _MEM_FORMAT_ENCODING(Enum):
    TORCH_CONTIGUOUS_FORMAT = 0
    TORCH_CHANNELS_LAST = 1
    TORCH_PRESERVE_FORMAT = 2


@dataclass
class TensorProperties:
    dtype: Any = None
    layout: Any = None
    requires_grad: bool = False
    memory_format: Any = None
    pin_memory: bool = False

    def __getstate__(self) -> Any:
        encoded = _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
        return (self.dtype, self.layout, self.requires_grad, encoded, self.pin_memory)

    def __setstate__(self, state: Any) -> None:
        self.dtype, self.layout, self.requires_grad, _, self.pin_memory = state
        self.memory_format = flambeau.contiguous_format

    @staticmethod
    def create_from_tensor(tensor: Any) -> TensorProperties:
        return TensorProperties(tensor.dtype, tensor.layout, tensor.requires_grad, flambeau.contiguous_format, False)


@dataclass
class TensorStorageMetadata:
    properties: TensorProperties
    size: Any
    chunks: list[ChunkStorageMetadata]


@dataclass
class BytesStorageMetadata:
    pass


@dataclass(frozen=True)
class MetadataIndex:
    fqn: str
    offset: Any = None
    index: int | None = field(hash=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if self.offset is not None and not isinstance(self.offset, flambeau.Size):
            object.__setattr__(self, "offset", flambeau.Size(self.offset))


@dataclass
class StorageMeta:
    checkpoint_id: Any = None
    save_id: str | None = None
    load_id: str | None = None
    modules: list[str] = field(default_factory=list)


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int
    transform_descriptors: Any = None


@dataclass
class Metadata:
    state_dict_metadata: dict[str, Any]
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: StorageMeta | None = None
    version: str | None = None


_HERE = "flambeau.distributed.checkpoint.metadata"
_NAMES = {
    "torch.distributed.checkpoint.metadata": (
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
_PLAIN = {
    ("collections", "OrderedDict"), ("pathlib", "PosixPath"), ("pathlib", "PurePosixPath"), ("builtins", "set"),
    ("copyreg", "_reconstructor"), ("builtins", "object"),
}  # fmt: skip
_PythonPickler: Any = pickle._Pickler


class _Pickler(_PythonPickler):  # type: ignore[misc] # has no types
    """Writes the classes above, dtypes and sizes under PyTorch's names."""

    def _write_name(self, module: str, name: str) -> None:
        self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    def save_global(self, obj: Any, name: str | None = None) -> None:
        own = getattr(obj, "__module__", "")
        if own == _HERE and obj.__name__ in _MODULE_OF:
            self._write_name(_MODULE_OF[obj.__name__], obj.__name__)
            self.memoize(obj)
        elif obj is flambeau.Size:
            self._write_name("torch", "Size")
            self.memoize(obj)
        else:
            super().save_global(obj, name)

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if isinstance(obj, flambeau.dtype):
            self._write_name("torch", str(obj).rpartition(".")[2])
        elif obj is flambeau.strided:
            self._write_name("torch.serialization", "_get_layout")
            super().save(("torch.strided",), save_persistent_id)
            self.write(pickle.REDUCE)
        elif isinstance(obj, flambeau.Size):
            self._write_name("torch", "Size")
            super().save((list(obj),), save_persistent_id)
            self.write(pickle.REDUCE)
        elif isinstance(obj, _MEM_FORMAT_ENCODING):  # by value, which Python's releases do in several ways
            self._write_name(_MODULE_OF[type(obj).__name__], type(obj).__name__)
            super().save((obj.value,), save_persistent_id)
            self.write(pickle.REDUCE)
        elif isinstance(obj, PurePath):
            super().save(str(obj), save_persistent_id)
        else:
            super().save(obj, save_persistent_id)


def _enum_member(owner: Any, name: str) -> Any:
    """What some releases of Python pickle members of enumerations by; of anything else it is refused."""
    if not (isinstance(owner, type) and issubclass(owner, Enum)):
        raise pickle.UnpicklingError(f"[checkpoint] expected a member of an enumeration, got {name} of {owner!r}")
    return owner[name]


class _Unpickler(pickle.Unpickler):
    """Finds the classes above and little else: a checkpoint cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _NAMES.get(module, ()) or (module == _HERE and name in _MODULE_OF):
            return globals()[name]
        if module in ("torch", "flambeau"):
            value = getattr(flambeau, name, None)
            if isinstance(value, flambeau.dtype) or name == "Size":
                return value
        if (module, name) == ("torch.serialization", "_get_layout"):
            return lambda text: flambeau.strided
        if name == "getattr" and module in ("builtins", "__builtin__"):
            return _enum_member
        if (module, name) in _PLAIN:
            import importlib

            return getattr(importlib.import_module(module), name)
        raise pickle.UnpicklingError(f"[checkpoint] expected the classes of a checkpoint, got {module}.{name}")


def write_metadata(metadata: Metadata) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=2).dump(metadata)
    return file.getvalue()


def read_metadata(data: bytes) -> Metadata:
    return _Unpickler(io.BytesIO(data)).load()
