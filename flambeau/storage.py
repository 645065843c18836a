"""Storages: the bytes below tensors, as objects.

An UntypedStorage is a window of bytes over a native storage; there is one Python object for each storage while anyone
holds it, so that sharing shows in `is`, in pickles and in deep copies. A TypedStorage reads it as elements of a dtype.
"""

from __future__ import annotations

import sys
import warnings
import weakref

import flambeau
from flambeau import _C
from flambeau._C import Tensor
from flambeau._tensor import quantized_types
from flambeau._tensor.quantized_types import QuantizedType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["UntypedStorage", "TypedStorage"]

_alive: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()


def storage_of(tensor: Tensor) -> UntypedStorage:
    """The one storage object of a tensor."""
    alive = _alive.get(tensor._storage_id())
    return alive if alive is not None else UntypedStorage._over(tensor._storage_view())


def _is_torch() -> bool:
    """Whether this process knows the package as torch, so that its pickles are for programs that use PyTorch."""
    return sys.modules.get("torch") is flambeau


def _load_from_bytes(data: bytes) -> Any:
    """What plain pickles of PyTorch's storages call."""
    import io

    return flambeau.load(io.BytesIO(data))


def _reduce_for_torch(storage: Any) -> Any:
    """A storage as PyTorch pickles it: a call of `torch.storage._load_from_bytes` with a checkpoint of it."""
    import io

    stream = io.BytesIO()
    flambeau.save(storage, stream)
    _load_from_bytes.__module__ = "torch.storage"
    return _load_from_bytes, (stream.getvalue(),)


def _check_data(storage: Any) -> None:
    if storage.device.type == "meta":
        raise NotImplementedError(
            "[storage] expected a storage with data, got one on meta: Not available for 'meta' device type"
        )


def _check_cpu(storage: Any, name: str) -> None:
    if storage.device.type == "meta":
        raise RuntimeError(
            f"[{name}] expected memory of the CPU, got {storage.device}: {name} is only available on CPU"
        )


class StorageBase:
    """What storages of programs derive from."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is StorageBase:
            raise RuntimeError(
                "[StorageBase] expected a class derived from it, got the class itself: Cannot directly construct StorageBase; "
                "subclass it and then construct that"
            )
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _fix_weakref(self) -> None:
        """Weak references stay right by themselves: an object lives as long as its storage."""


_StorageBase = StorageBase


class UntypedStorage(StorageBase):
    """A resizable block of bytes on a device."""

    is_sparse = False
    is_sparse_csr = False

    def __init__(self, size: Any = 0, *, device: Any = None) -> None:
        if isinstance(size, int):
            data = flambeau.empty(size, dtype=flambeau.uint8, device=device)
        else:
            data = flambeau.tensor(list(size), dtype=flambeau.uint8, device=device)
        self._bytes = data
        _alive[data._storage_id()] = self

    @classmethod
    def _over(cls, view: Tensor) -> UntypedStorage:
        self = cls.__new__(cls)
        self._bytes = view
        _alive[view._storage_id()] = self
        return self

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", dtype: Any = None, **kwargs: Any) -> UntypedStorage:
        if byte_order not in ("native", "little", "big"):
            raise ValueError(f"[from_buffer] expected byte_order to be native, little or big, got {byte_order!r}")
        data = flambeau.frombuffer(buffer, dtype=flambeau.uint8, **kwargs).clone()
        if dtype == flambeau.bool:  # whatever is not zero is true
            data = (data != 0).to(flambeau.uint8)
        storage = storage_of(data)
        if dtype is not None and byte_order not in ("native", sys.byteorder):
            storage.byteswap(dtype)
        return storage

    @property
    def _cdata(self) -> int:
        return self._bytes._storage_id()

    @property
    def device(self) -> Any:
        return self._bytes.device

    @property
    def is_cuda(self) -> bool:
        return self._bytes.is_cuda

    _file: str | None = None

    @property
    def filename(self) -> str | None:
        """The file that writes go to, if the storage maps one."""
        return self._file

    def _view(self) -> Tensor:
        """The bytes as they are now: resizing changes their number."""
        if self._bytes.numel() != self._bytes._storage_bytes():
            self._bytes = self._bytes._storage_view()
        return self._bytes

    def nbytes(self) -> int:
        return self._bytes._storage_bytes()

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        return 1

    def data_ptr(self) -> int:
        return self._bytes._storage_address()

    def resizable(self) -> bool:
        return self._bytes._storage_resizable()

    def resize_(self, size: int) -> UntypedStorage:
        self._bytes._storage_resize(size)
        self._view()
        return self

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The bytes of a file, mapped; with `shared` writes reach the file, which grows to `nbytes` if it is short."""
        import mmap

        with open(filename, "r+b" if shared else "rb") as file:
            size = file.seek(0, 2)
            if shared and size < nbytes:
                file.truncate(nbytes)
                size = nbytes
            if nbytes < 0 or nbytes > size:
                raise RuntimeError(f"[from_file] expected a file of at least {nbytes} bytes, got {size}")
            nbytes = nbytes or size
            if nbytes == 0:
                return cls(0)
            memory = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
        address, owner = _C._buffer_address(memory)
        storage = cls._over(_C._from_pointer(owner, address, (nbytes,), (1,), flambeau.uint8))
        storage._file = str(filename) if shared else None
        return storage

    def __getitem__(self, key: Any) -> Any:
        """One byte, or a storage over the memory of some of them."""
        _check_data(self)
        if not isinstance(key, slice):
            return self._view()[key].item()
        start, stop, step = key.indices(self.nbytes())
        if step != 1:
            raise TypeError(f"[storage] expected a slice of step 1, got {step}")
        count = max(0, stop - start)
        if count == 0 or self.device.type != "cpu":
            return storage_of(self._view()[key].clone())
        return storage_of(_C._from_pointer(self._bytes, self.data_ptr() + start, (count,), (1,), flambeau.uint8))

    def __setitem__(self, key: Any, value: Any) -> None:
        _check_data(self)
        self._view()[key] = value._view() if isinstance(value, UntypedStorage) else value

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        _check_data(self)
        return self._view().tolist()

    def fill_(self, value: int) -> UntypedStorage:
        self._view().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        self._view().copy_(source._view() if isinstance(source, UntypedStorage) else source)
        return self

    def clone(self) -> UntypedStorage:
        return storage_of(self._view().clone())

    def cpu(self) -> UntypedStorage:
        return self if self.device.type == "cpu" else storage_of(self._view().cpu())

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        moved = self._view().to(device)
        return self if moved is self._bytes else storage_of(moved)

    def new(self) -> UntypedStorage:
        return UntypedStorage(0, device=self.device)

    def byteswap(self, dtype: Any) -> None:
        """Reverse the bytes of each element, in place; complex numbers are two elements."""
        item = dtype.to_real().itemsize if dtype.is_complex else dtype.itemsize
        data = self._view()
        data.copy_(data.view(-1, item).flip(1).reshape(-1))

    def is_shared(self) -> bool:
        return _C._storage_is_shared(self._bytes)

    def is_pinned(self, device: Any = None) -> bool:
        return self.device.type == "cpu" and bool(self._view().is_pinned(device))

    def share_memory_(self) -> UntypedStorage:
        """Moves the bytes to memory that other processes can map; does nothing when they are there."""
        _check_cpu(self, "share_memory_")
        if self.device.type == "cpu" and not self.is_shared():
            _C._share_storage(self._bytes)
        return self

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> UntypedStorage:
        """A new storage of shared memory, as older collating functions make them in workers."""
        return storage_of(_C._empty_shared(size))

    def _share_fd_cpu_(self) -> tuple[int, int]:
        """A descriptor of the memory, which the caller closes, and its size."""
        import os

        _check_cpu(self, "_share_fd_cpu_")
        if _C._storage_descriptor(self._bytes) < 0:
            _C._share_storage(self._bytes)
        return os.dup(_C._storage_descriptor(self._bytes)), self.nbytes()

    def _share_filename_cpu_(self) -> Any:
        """Memory is shared by descriptors; there are no names for it."""
        _check_cpu(self, "_share_filename_cpu_")
        raise NotImplementedError(
            "[_share_filename_cpu_] expected memory to be shared by a descriptor, got a call for its name"
        )

    @classmethod
    def _new_shared_fd_cpu(cls, descriptor: int, size: int) -> UntypedStorage:
        """A storage over the memory behind a descriptor."""
        return storage_of(_C._map_shared(descriptor, size, True))

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        return storage_of(self._view().pin_memory(device))

    def untyped(self) -> UntypedStorage:
        return self

    def get_device(self) -> int:
        return self._bytes.get_device()

    def type(self, dtype: Any = None) -> str:
        return "torch.storage.UntypedStorage"

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> UntypedStorage:
        copies = memo.setdefault("storages", {})
        if self._cdata not in copies:
            copies[self._cdata] = self.clone()
        return copies[self._cdata]

    def __reduce__(self) -> Any:
        from flambeau import _utils

        if _is_torch():
            return _reduce_for_torch(self)
        if self.device.type == "meta":
            return (_utils._rebuild_untyped_storage, (None, self.nbytes(), "meta"))
        return (
            _utils._rebuild_untyped_storage,
            (self._view().cpu().numpy().tobytes(), self.nbytes(), str(self.device)),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def __repr__(self) -> str:
        lines = "\n ".join(str(x) for x in self.tolist()) if self.device.type != "meta" else "..."
        return f" {lines}\n[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


_warning = {"always": False, "given": False}


def _get_always_warn_typed_storage_removal() -> bool:
    return _warning["always"]


def _set_always_warn_typed_storage_removal(always_warn: bool) -> None:
    """Whether every use of a typed storage is warned about, not only the first."""
    if not isinstance(always_warn, bool):
        raise AssertionError(f"[storage] expected a bool, got {type(always_warn).__name__}")
    _warning["always"] = always_warn


def _reset_warn_typed_storage_removal() -> None:
    _warning["given"] = False


def _warn_typed_storage_removal(stacklevel: int = 2) -> None:
    """Says, once, that untyped storages are the ones that stay."""
    if _warning["given"] and not _warning["always"]:
        return
    _warning["given"] = True
    warnings.warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. This should "
        "only matter to you if you are using storages directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead "
        "of tensor.storage()",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def _check_arguments(storage: TypedStorage, args: tuple[Any, ...], wrap_storage: Any, dtype: Any, device: Any) -> None:
    """Refuses what typed storages, and those of the legacy classes, cannot be made of."""
    name, legacy = type(storage).__name__, storage._dtype is not None

    def refuse(expected: str, got: Any, words: str, kind: type[Exception] = RuntimeError) -> None:
        raise kind(f"[{name}] expected {expected}, got {got}: {words}")

    if type(storage) is _LegacyStorage:
        refuse("a class of one dtype", name, "Only child classes of _LegacyStorage can be instantiated")
    if legacy and device is not None:
        refuse("a size, data or wrap_storage", "a device", "Keyword argument 'device' cannot be specified")
    if legacy and dtype is not None:
        refuse("a size, data or wrap_storage", "a dtype", "Keyword argument 'dtype' cannot be specified")
    if wrap_storage is None:
        if len(args) > 1:
            refuse("a size or data", f"{len(args)} arguments", "Too many positional arguments")
        if args and isinstance(args[0], str):
            refuse("numbers", "a str", "new(): invalid data type 'str'", TypeError)
        if args and (isinstance(args[0], Tensor) or not (isinstance(args[0], int) or hasattr(args[0], "__len__"))):
            refuse(
                "a size or a sequence",
                type(args[0]).__name__,
                f"Argument type not recognized: {type(args[0])}",
                TypeError,
            )
        return
    if args:
        refuse(
            "wrap_storage alone", "other arguments", "No positional arguments should be given when using 'wrap_storage'"
        )
    if not legacy and dtype is None:
        refuse("a dtype", "none", "Argument 'dtype' must be specified")
    if not legacy and not isinstance(dtype, (flambeau.dtype, QuantizedType)):
        refuse("a dtype", type(dtype).__name__, f"Argument 'dtype' must be torch.dtype, not {type(dtype)}", TypeError)
    if device is not None:
        refuse("no device", device, "Argument 'device' should not be specified when 'wrap_storage' is given")
    if not isinstance(wrap_storage, UntypedStorage):
        words = f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}"
        refuse("an UntypedStorage", type(wrap_storage).__name__, words, TypeError)


def _element_dtype(dtype: Any) -> Any:
    """The dtype of tensors that hold a storage's elements: quantized numbers are integers."""
    return dtype if isinstance(dtype, flambeau.dtype) else getattr(flambeau, dtype.stored_as)


class TypedStorage:
    """An UntypedStorage read as elements of a dtype."""

    is_sparse = False
    _dtype: Any = None  # of the legacy classes such as FloatStorage

    def __init__(
        self, *args: Any, wrap_storage: Any = None, dtype: Any = None, device: Any = None, _internal: bool = False
    ) -> None:
        if not _internal:
            _check_arguments(self, args, wrap_storage, dtype, device)
            if self._dtype is not None or wrap_storage is None:
                _warn_typed_storage_removal()
        self.dtype = dtype if dtype is not None else (self._dtype or flambeau.get_default_dtype())
        if wrap_storage is not None:
            self._untyped_storage = wrap_storage
        elif args and not isinstance(args[0], int):
            self._untyped_storage = storage_of(
                flambeau.tensor(list(args[0]), dtype=_element_dtype(self.dtype), device=device)
            )
        else:
            count = args[0] if args else 0
            self._untyped_storage = UntypedStorage(count * self.dtype.itemsize, device=device)

    def _view(self) -> Tensor:
        item = self.dtype.itemsize
        whole = self._untyped_storage.nbytes() // item
        return self._untyped_storage._view()[: whole * item].view(_element_dtype(self.dtype))

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    @property
    def is_cuda(self) -> bool:
        return self._untyped_storage.is_cuda

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        return self.nbytes() // self.dtype.itemsize

    __len__ = size
    _size = size

    def element_size(self) -> int:
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    def resize_(self, size: int) -> TypedStorage:
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def resizable(self) -> bool:
        return self._untyped_storage.resizable()

    def __getitem__(self, key: Any) -> Any:
        _check_data(self)
        if not isinstance(key, (int, slice)):
            raise RuntimeError(
                f"[TypedStorage] expected an index or a slice, got {type(key).__name__}: can't index a {type(self)} with {type(key)}"
            )
        if isinstance(key, slice):
            return TypedStorage(wrap_storage=storage_of(self._view()[key].clone()), dtype=self.dtype)
        return self._view()[key].item()

    def __setitem__(self, key: Any, value: Any) -> None:
        _check_data(self)
        self._view()[key] = value

    def __iter__(self) -> Any:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        _check_data(self)
        return self._view().tolist()

    def _to(self, dtype: Any) -> TypedStorage:
        """The elements as those of another dtype; the storage itself if it has that."""
        if dtype == self.dtype:
            return self
        return TypedStorage(wrap_storage=storage_of(self._view().to(_element_dtype(dtype))), dtype=dtype)

    def _write_file(self, f: Any, is_real_file: bool, save_size: bool, element_size: int) -> None:
        """Writes the bytes, perhaps behind their number of elements, to a file object."""
        data = self._untyped_storage.cpu()
        if save_size:
            f.write((data.nbytes() // element_size).to_bytes(8, "little"))
        f.write(bytes(data.tolist()))

    def fill_(self, value: Any) -> TypedStorage:
        if isinstance(value, TypedStorage):
            raise RuntimeError(
                f"[fill_] expected a number, got a storage: cannot set item with value type {type(value)}"
            )
        self._view().fill_(value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        self._view().copy_(source._view() if isinstance(source, TypedStorage) else source)
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.cpu(), dtype=self.dtype)

    def type(self, dtype: Any = None) -> str:
        return f"torch.{_LEGACY[self.dtype]}Storage"

    def pickle_storage_type(self) -> str:
        return f"{_LEGACY[self.dtype]}Storage"

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def is_pinned(self, device: Any = None) -> bool:
        return self._untyped_storage.is_pinned(device)

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    def _share_fd_cpu_(self) -> tuple[int, int]:
        return self._untyped_storage._share_fd_cpu_()

    def _share_filename_cpu_(self) -> Any:
        return self._untyped_storage._share_filename_cpu_()

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.to(device=device), dtype=self.dtype)

    def pin_memory(self, device: Any = None) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.pin_memory(device), dtype=self.dtype)

    # What PyTorch calls from inside, where the public methods warn that typed storages are going away.
    def _getitem(self, key: Any) -> Any:
        return self[key]

    def _setitem(self, key: Any, value: Any) -> None:
        self[key] = value

    def _nbytes(self) -> int:
        return self.nbytes()

    def _element_size(self) -> int:
        return self.element_size()

    def _resize_(self, size: int) -> TypedStorage:
        return self.resize_(size)

    def _is_shared(self) -> bool:
        return self.is_shared()

    def _share_memory_(self) -> TypedStorage:
        return self.share_memory_()

    def _pickle_storage_type(self) -> str:
        return self.pickle_storage_type()

    def _deepcopy(self, memo: dict[Any, Any]) -> TypedStorage:
        return self.__deepcopy__(memo)

    def _get_legacy_storage_class(self) -> Any:
        return LEGACY_CLASSES[self.pickle_storage_type()]

    def _new_shared(self, size: int, *, device: Any = None) -> TypedStorage:
        """A new storage of shared memory for as many elements."""
        untyped = UntypedStorage._new_shared(size * self.dtype.itemsize)
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, **kwargs: Any) -> TypedStorage:
        """The elements of an object with the buffer protocol, copied."""
        dtype = dtype or cls._dtype or flambeau.get_default_dtype()
        return TypedStorage(wrap_storage=UntypedStorage.from_buffer(*args, dtype=dtype, **kwargs), dtype=dtype)  # type: ignore[misc]

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> TypedStorage:
        """The elements of a file, mapped."""
        dtype = cls._dtype or flambeau.get_default_dtype()
        untyped = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return TypedStorage(wrap_storage=untyped, dtype=dtype)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    def get_device(self) -> int:
        return self._untyped_storage.get_device()

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[Any, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.__deepcopy__(memo), dtype=self.dtype)

    def __reduce__(self) -> Any:
        from flambeau import _utils

        if _is_torch():
            return _reduce_for_torch(self)
        return (_utils._rebuild_typed_storage, (self._untyped_storage, self.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __repr__(self) -> str:
        lines = "\n ".join(str(x) for x in self.tolist()) if self.device.type != "meta" else "..."
        kind = f"torch.storage.TypedStorage(dtype={self.dtype}, device={self.device})"
        return f" {lines}\n[{kind} of size {self.size()}]"


_LEGACY: dict[Any, str] = {
    flambeau.float64: "Double", flambeau.float32: "Float", flambeau.float16: "Half", flambeau.int64: "Long",
    flambeau.int32: "Int", flambeau.int16: "Short", flambeau.int8: "Char", flambeau.uint8: "Byte",
    flambeau.bool: "Bool", flambeau.bfloat16: "BFloat16", flambeau.complex128: "ComplexDouble",
    flambeau.complex64: "ComplexFloat",
    **{dtype: dtype.storage_name.removesuffix("Storage") for dtype in vars(quantized_types).values() if isinstance(dtype, QuantizedType)},
}  # fmt: skip
_CASTS = (
    "double float half long int short char byte bool bfloat16 complex_double complex_float float8_e5m2 float8_e4m3fn float8_e5m2fnuz "
    "float8_e4m3fnuz"
)


def _cast(name: str) -> Any:
    dtype = getattr(flambeau, {"char": "int8", "byte": "uint8"}.get(name, name.replace("complex_", "c")))

    def cast(self: TypedStorage) -> TypedStorage:
        return self._to(dtype)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"The elements as {dtype}."
    return cast


for _name in _CASTS.split():
    setattr(TypedStorage, _name, _cast(_name))

STORAGE_NAMES = {dtype: f"{name}Storage" for dtype, name in _LEGACY.items()}  # as checkpoints call them


class _LegacyStorageMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is _LegacyStorage:
            return isinstance(instance, TypedStorage)
        return isinstance(instance, TypedStorage) and instance.dtype == cls._dtype

    @property
    def dtype(cls) -> Any:
        return cls.__dict__.get("_dtype")


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """Base of FloatStorage and the others: typed storages of one dtype."""


LEGACY_CLASSES = {
    f"{name}Storage": _LegacyStorageMeta(f"{name}Storage", (_LegacyStorage,), {"_dtype": dtype, "__module__": "torch"})
    for dtype, name in _LEGACY.items()
}


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """The names of the classes for one dtype."""
    return {dtype: f"{name}Storage" for dtype, name in _LEGACY.items()}


def _storage_type_to_dtype_map() -> dict[str, Any]:
    return {name: dtype for dtype, name in _dtype_to_storage_type_map().items()}
