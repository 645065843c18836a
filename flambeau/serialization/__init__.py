"""`save` and `load`: checkpoints in PyTorch's zip format, both ways.

`archive` reads and writes the zip file, `pickler` writes the object in it under PyTorch's names, `unpickler` reads it
back without running code, `locations` puts storages where they belong. A path is written to a temporary file first and
renamed when it is complete and on disk: a crash leaves the old checkpoint or the new one.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from typing import IO, Any, Optional, Union

import flambeau
from flambeau import _C
from flambeau.serialization import unpickler as _safe
from flambeau.serialization.archive import ALIGNMENT, ArchiveError, FileSource, MemorySource, Reader, Writer
from flambeau.serialization.legacy import LegacyReader, is_legacy
from flambeau.serialization.locations import (
    default_restore_location,
    goes_to_meta,
    location_tag,
    register_package,
    restorer,
)
from flambeau.storage import TypedStorage, UntypedStorage, storage_of

__all__ = [
    "save", "load", "add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals",
    "get_unsafe_globals_in_checkpoint", "skip_data", "register_package", "location_tag", "default_restore_location",
    "LoadEndianness", "get_default_load_endianness", "set_default_load_endianness", "get_default_mmap_options",
    "set_default_mmap_options", "get_crc32_options", "set_crc32_options", "SourceChangeWarning",
]  # fmt: skip

DEFAULT_PROTOCOL = 2
FILE_LIKE = FileLike = Union[str, os.PathLike[str], IO[bytes]]  # evaluated, under PyTorch's names
MAP_LOCATION = Optional[Union[Callable[[Any, str], Any], "flambeau.device", str, dict[str, str]]]  # noqa: UP045


class SourceChangeWarning(Warning):
    """Kept for programs that filter it."""


class LoadEndianness(Enum):
    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options:
    """Settings of this module."""

    endianness: LoadEndianness | None = None
    checksums = True
    mmap_flags = 2  # MAP_PRIVATE
    skip_data = False
    materialize_fake = False


def get_default_load_endianness() -> LoadEndianness | None:
    return _Options.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """The byte order to assume for files that do not say theirs."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"[load] expected a LoadEndianness or None, got {type(endianness).__name__}")
    _Options.endianness = endianness


def get_crc32_options() -> bool:
    return _Options.checksums


def set_crc32_options(compute_crc32: bool) -> None:
    _Options.checksums = bool(compute_crc32)


def get_default_mmap_options() -> int:
    return _Options.mmap_flags


class set_default_mmap_options:
    """How `mmap=True` maps files: privately, or shared so that writes reach the file. Also a context manager."""

    def __init__(self, flags: int) -> None:
        import mmap

        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(f"[load] expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, got {flags}")
        self._before, _Options.mmap_flags = _Options.mmap_flags, flags

    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> None:
        _Options.mmap_flags = self._before


class skip_data:
    """Inside, `save` leaves room for storages without writing them."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self._fake = materialize_fake_tensors

    def __enter__(self) -> None:
        self._before, _Options.skip_data = _Options.skip_data, True

    def __exit__(self, *error: Any) -> None:
        _Options.skip_data = self._before


# ---------------------------------------------------------------------------------------------- safe globals


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let checkpoints name these classes and functions."""
    _safe.add_user_globals(safe_globals)


def get_safe_globals() -> list[Any]:
    return _safe.user_globals()


def clear_safe_globals() -> None:
    _safe.replace_user_globals({})


class safe_globals:
    """Inside, checkpoints may name these classes and functions too."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._items = safe_globals

    def __enter__(self) -> None:
        self._before = _safe.replace_user_globals(dict(_safe._user_globals))
        _safe.add_user_globals(self._items)

    def __exit__(self, *error: Any) -> None:
        _safe.replace_user_globals(self._before)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """Names in a checkpoint that `load` would refuse."""
    with _opened(f) as source:
        names = _safe.globals_in(Reader(source).read("data.pkl"))
    return [name for name in names if not _safe.is_allowed(name)]


# ---------------------------------------------------------------------------------------------- save


def _is_path(f: Any) -> bool:
    return isinstance(f, (str, os.PathLike))


_PIECE = 16 << 20


class _DescriptorSink:
    """Writes all of each piece to a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._written = self._started = 0

    def reserve(self, size: int) -> None:
        """Room for a file of about this size, found at once instead of piece by piece."""
        if hasattr(os, "posix_fallocate") and size > 1 << 20:
            with contextlib.suppress(OSError):  # not every file system can
                os.posix_fallocate(self._descriptor, 0, size)

    def write(self, data: Any) -> None:
        view = memoryview(data)
        while len(view):
            count = os.write(self._descriptor, view[:_PIECE])
            self._written += count
            view = view[count:]
            if self._written - self._started >= _PIECE and hasattr(os, "posix_fadvise"):
                # Lets the disk begin with what it has to finish anyway.
                size = self._written - self._started
                os.posix_fadvise(self._descriptor, self._started, size, os.POSIX_FADV_DONTNEED)
                self._started = self._written

    def finish(self) -> None:
        os.ftruncate(self._descriptor, self._written)
        os.fsync(self._descriptor)


def _open_nameless(folder: str, mode: int) -> int:
    """A new file without a name, of which nothing stays if the process is killed; -1 where there are none."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return -1
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
    except OSError:  # not every file system can
        return -1


def _name(descriptor: int, folder: str, name: str) -> None:
    """Gives a file without a name one. The link in /proc is followed only by the call that takes a folder's descriptor."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=place, follow_symlinks=True)
    finally:
        os.close(place)


_ABANDONED = 3600.0  # seconds after which a temporary file of a process that is gone is deleted


def _remove_abandoned(folder: str, name: str) -> None:
    """Deletes what killed processes left of earlier saves of the same file."""
    prefix = f".{name[:200]}."
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(".tmp")):
                continue
            owner = entry.name[len(prefix) :].split(".")[0]
            with contextlib.suppress(OSError):
                if owner.isdigit() and not _is_running(int(owner)) and time.time() - entry.stat().st_mtime > _ABANDONED:
                    os.unlink(entry.path)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


@contextlib.contextmanager
def replacing(path: Any) -> Iterator[_DescriptorSink]:
    """Writes to a file beside `path` that takes its place once it is complete and on disk."""
    path = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        raise RuntimeError(f"[save] expected a folder that exists, got {folder!r}")
    if os.path.exists(path) and not (os.path.isfile(path) and os.access(folder, os.W_OK)):
        # A device or a pipe cannot be replaced, nor a file in a folder that may not be changed.
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        try:
            yield _DescriptorSink(descriptor)
        finally:
            os.close(descriptor)
        return
    temporary = os.path.join(folder, f".{name[:200]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    _remove_abandoned(folder, name)
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666
    descriptor = _open_nameless(folder, mode)
    nameless = descriptor >= 0
    if not nameless:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), mode)
    try:
        try:
            sink = _DescriptorSink(descriptor)
            yield sink
            sink.finish()
            if nameless:
                _name(descriptor, folder, os.path.basename(temporary))
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object to a path or a file object.

    >>> import io
    >>> buffer = io.BytesIO()
    >>> flambeau.save({"w": flambeau.ones(2)}, buffer)
    """
    if not 2 <= pickle_protocol <= 5:
        raise ValueError(f"[save] expected a pickle protocol from 2 to 5, got {pickle_protocol}")
    if not _is_path(f) and not hasattr(f, "write"):
        raise AttributeError(f"[save] expected a path or an object with write(), got {type(f).__name__}")
    stream = io.BytesIO()
    from flambeau.serialization.pickler import CheckpointPickler, pickler_over

    kind = CheckpointPickler if pickle_module is None else pickler_over(pickle_module)
    pickler = kind(stream, pickle_protocol)
    pickler.whole_storages = not _use_new_zipfile_serialization
    pickler.dump(obj)
    if not _use_new_zipfile_serialization:
        from flambeau.serialization.legacy import write_legacy

        with replacing(f) if _is_path(f) else contextlib.nullcontext(f) as sink:
            write_legacy(sink, stream, pickler)
    elif _is_path(f):
        name = os.path.basename(os.fspath(f))
        name = name if isinstance(name, str) else os.fsdecode(name)
        with replacing(f) as sink:
            sink.reserve(sum(storage.nbytes() for storage in pickler.storages.values()))
            _write_archive(sink, os.path.splitext(name)[0] or "archive", stream, pickler, _disable_byteorder_record)
    else:
        _write_archive(f, "archive", stream, pickler, _disable_byteorder_record)
        if hasattr(f, "flush"):
            f.flush()


def _write_archive(sink: Any, folder: str, stream: io.BytesIO, pickler: Any, without_order: bool) -> None:
    writer = Writer(sink, folder, _Options.checksums)
    writer.add("data.pkl", stream.getbuffer())
    writer.add(".format_version", b"1")
    writer.add(".storage_alignment", str(ALIGNMENT).encode())
    if not without_order:
        writer.add("byteorder", sys.byteorder.encode())
    for key, storage in pickler.storages.items():
        held = storage.cpu() if storage.device.type != "meta" else None
        if held is None or _Options.skip_data:
            writer.add(f"data/{key}", bytes(storage.nbytes()))
        else:
            writer.add(f"data/{key}", _C._storage_memory(held._bytes))
    writer.add("version", b"3\n")
    writer.add(".data/serialization_id", f"{int.from_bytes(os.urandom(16), 'big') % 10**40:040d}".encode())
    writer.finish()


# ---------------------------------------------------------------------------------------------- load


@contextlib.contextmanager
def _opened(f: Any) -> Iterator[Any]:
    """Bytes of a path or a file object."""
    if _is_path(f):
        source = FileSource(f)
        try:
            yield source
        finally:
            source.close()
        return
    if not hasattr(f, "read"):
        raise AttributeError(f"[load] expected a path or an object with read() and seek(), got {type(f).__name__}")
    start = f.tell() if hasattr(f, "tell") else 0
    if isinstance(f, io.BytesIO):
        with f.getbuffer() as memory:
            source = MemorySource(memory[start:])  # type: ignore[assignment]
            try:
                yield source
            finally:
                source.memory.release()
        f.seek(start + source.end)
        return
    data = f.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"[load] expected a file opened in binary mode, got one whose read() gives {type(data).__name__}"
        )
    source = MemorySource(data)  # type: ignore[assignment]
    yield source
    if source.end < source.size and hasattr(f, "seek"):
        f.seek(start + source.end)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` wrote, here or in PyTorch. By default nothing in the file is run.

    >>> import io
    >>> buffer = io.BytesIO()
    >>> flambeau.save({"w": flambeau.ones(2)}, buffer)
    >>> _ = buffer.seek(0)
    >>> flambeau.load(buffer)
    {'w': tensor([1., 1.])}
    """
    if weights_only is None:
        weights_only = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "") not in ("1", "y", "yes", "true")
        if pickle_module is not None:
            weights_only = False
    if weights_only and pickle_module is not None:
        raise RuntimeError("[load] expected no pickle_module with weights_only=True, got one")
    encoding = pickle_load_args.pop("encoding", "utf-8")
    if pickle_load_args:
        raise TypeError(f"[load] expected 'encoding' as the only other argument, got {sorted(pickle_load_args)}")
    if mmap and not _is_path(f):
        raise ValueError("[load] expected a path with mmap=True, got a file object")
    with _opened(f) as source:
        head = source.read(0, min(source.size, 300))
        if is_legacy(head):
            legacy = LegacyReader(source.read(0, source.size), restorer(map_location), encoding)
            value, source.end = legacy.load()
            return value
        _refuse_other_formats(head)
        loader = _Loader(Reader(source), f if mmap else None, map_location)
        if "data.pkl" not in loader.reader:
            raise ArchiveError("[load] expected a checkpoint in zip format, got an archive without 'data.pkl'")
        if "constants.pkl" in loader.reader:
            if weights_only:
                raise RuntimeError(
                    "[load] expected a checkpoint, got a TorchScript archive: Cannot use ``weights_only=True`` with TorchScript archives passed to "
                    "``torch.load``; torch.jit.load reads those"
                )
            return _load_script(source, map_location)
        data = loader.reader.read("data.pkl")
        if weights_only:
            return _safe.SafeUnpickler(data, loader.storage, encoding).load()
        return _trusting_load(data, loader, pickle_module, encoding)


def _load_script(source: Any, map_location: Any) -> Any:
    """The module of a TorchScript archive."""
    import importlib

    warnings.warn(
        "'torch.load' received a zip file that looks like a TorchScript archive dispatching to 'torch.jit.load' (call 'torch.jit.load' directly to silence this warning)",
        UserWarning,
        stacklevel=3,
    )
    archive = io.BytesIO(bytes(source.read(0, source.size)))
    return importlib.import_module("flambeau.jit").load(archive, map_location)


def _load_in_place(memory: memoryview) -> Any:
    """What `save` wrote, at its place in mapped memory: tensors read it there, as far as it is aligned."""
    _refuse_other_formats(bytes(memory[:300]))
    source = MemorySource(memory)
    loader = _Loader(Reader(source), None, "cpu")
    loader._mapping = memory
    return _safe.SafeUnpickler(loader.reader.read("data.pkl"), loader.storage, "utf-8").load()


def _refuse_other_formats(head: bytes) -> None:
    if head[:4] == b"PK\x03\x04":
        return
    if not head:
        raise EOFError("[load] expected a checkpoint, got an empty file")
    if head[257:262] == b"ustar":
        raise ArchiveError("[load] expected the zip format, got a tar file as PyTorch before 0.1.10 wrote them")
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise ArchiveError(
            "[load] expected a checkpoint, got a plain pickle; use pickle.load if you trust where it comes from"
        )
    if len(head) > 9 and head[8:9] == b"{":
        raise ArchiveError("[load] expected the zip format, got what looks like safetensors; use safetensors.load_file")


class _Loader:
    """Storages of an archive by key, each read once."""

    def __init__(self, reader: Reader, mapped_path: Any, map_location: Any) -> None:
        self.reader = reader
        self._restore = restorer(map_location)
        self._to_meta = goes_to_meta(map_location)
        self._mapping = _map_file(mapped_path) if mapped_path is not None else None
        self._loaded: dict[str, UntypedStorage] = {}
        self._swap = self._other_order()

    def _other_order(self) -> bool:
        if "byteorder" in self.reader:
            order = self.reader.read("byteorder").decode("ascii", "replace")
            if order not in ("little", "big"):
                raise ValueError(f"[load] expected the byte order little or big, got {order!r}")
            return order != sys.byteorder
        chosen = _Options.endianness
        return chosen not in (None, LoadEndianness.NATIVE) and chosen.name.lower() != sys.byteorder

    def storage(self, reference: Any) -> Any:
        """The storage that a reference in the pickle stands for, as elements of its dtype."""
        if type(reference) is not tuple or len(reference) != 5 or reference[0] != "storage":
            raise _safe.UnpicklingError("[load] expected a reference to a storage, got another value")
        _, kind, key, location, count = reference
        if not isinstance(kind, _safe.StorageKind):
            kind = _safe.StorageKind(getattr(kind, "_dtype", None))
        if type(key) is not str or type(location) is not str or type(count) is not int or count < 0:
            raise _safe.UnpicklingError("[load] expected key, place and length of a storage, got other values")
        dtype = kind.dtype
        untyped = self._loaded.get(key)
        size = count * (1 if dtype is None else dtype.itemsize)
        if untyped is None:
            if not self._to_meta and self.reader.size(f"data/{key}") < size:
                raise _safe.UnpicklingError(
                    f"[load] expected {size} bytes in the record of storage {key}, got "
                    f"{self.reader.size(f'data/{key}')}"
                )
            untyped = self._loaded[key] = self._read(f"data/{key}", location, size, dtype)
        elif untyped.nbytes() < size:
            raise _safe.UnpicklingError(f"[load] expected {size} bytes in storage {key}, got {untyped.nbytes()}")
        return untyped if dtype is None else TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)

    def _read(self, name: str, location: str, size: int, dtype: Any) -> UntypedStorage:
        if self._to_meta or location == "meta":
            return UntypedStorage(size, device="meta")
        result = None
        if self._mapping is not None and not self._swap and size:
            start = self.reader.start(name)
            address, owner = _C._buffer_address(self._mapping)
            if start is not None and (address + start) % 8 == 0 and start + size <= len(self._mapping):
                result = _C._from_pointer(owner, address + start, (size,), (1,), flambeau.uint8)
        if result is None:
            size = self.reader.size(name)
            result = flambeau.empty(size, dtype=flambeau.uint8, device="cpu")
            self.reader.read_into(name, _C._storage_memory(result))
            if self._swap and dtype is not None:
                storage_of(result).byteswap(dtype)
        return self._restore(storage_of(result), location)


def _map_file(path: Any) -> Any:
    """The file as memory that can be written, without changing the file unless asked to."""
    import mmap

    shared = _Options.mmap_flags == mmap.MAP_SHARED
    with open(path, "r+b" if shared else "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)


def _trusting_load(data: bytes, loader: _Loader, pickle_module: Any, encoding: str) -> Any:
    """By pickle itself: runs whatever the file asks for. Names of PyTorch mean this package."""
    import pickle

    from flambeau.serialization import packed_objects

    base = (pickle_module or pickle).Unpickler

    class TrustingUnpickler(base):  # type: ignore[misc, valid-type]
        def find_class(self, module: str, name: str) -> Any:
            if f"{module}.{name}" in packed_objects.NAMES:
                return packed_objects.PackedObject
            if module == "torch" or module.startswith("torch."):
                return own_global(module, name)
            return super().find_class(module, name)

        def persistent_load(self, reference: Any) -> Any:
            return loader.storage(reference)

    return TrustingUnpickler(io.BytesIO(data), encoding=encoding).load()


def own_global(module: str, name: str) -> Any:
    """What this package has under a name of PyTorch."""
    from importlib import import_module

    if f"{module}.{name}" in ("torch._tensor._rebuild_from_type_v2",):
        module = "torch._utils"
    if module == "torch" and name.endswith("Storage") and f"torch.{name}" in _safe._VALUES:
        return _safe._VALUES[f"torch.{name}"]
    if f"{module}.{name}" == "torch.storage.UntypedStorage":
        return _safe._VALUES["torch.storage.UntypedStorage"]
    try:
        place = import_module("flambeau" + module[5:])
        for part in name.split("."):
            place = getattr(place, part)
    except (ImportError, AttributeError) as error:
        raise _safe.UnpicklingError(f"[load] expected a name that exists here, got {module}.{name}") from error
    return place


def normalize_storage_type(storage_type: Any) -> Any:
    """The class of storages of a dtype, for a class of storages."""
    return getattr(flambeau, storage_type.__name__)


def _get_layout(name: str) -> Any:
    """What pickles of layouts call."""
    return _safe.get_layout(name)


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[int, ...], error_if_malformed: bool = True
) -> bool:
    """Whether a module is at least of a version."""
    try:
        version = tuple(int(part) for part in module.__version__.split(".")[: len(req_version_tuple)])
    except ValueError:
        if error_if_malformed:
            raise RuntimeError(f"[load] expected a version of numbers, got {module.__version__!r}") from None
        return True
    return version >= tuple(req_version_tuple)


def _is_zipfile(f: Any) -> bool:
    """Whether a file object, at its place, begins a zip archive."""
    start = f.tell()
    head = f.read(4)
    f.seek(start)
    return bytes(head) == b"PK\x03\x04"
