"""Zip archives of stored records, read and written without trusting them.

A checkpoint is a zip archive whose records lie uncompressed and aligned, so that a storage can be read or mapped in
place. The writer streams records to anything with `write`. The reader takes the directory at the end of the archive as
a claim: every offset, size and overlap is checked before bytes are touched, and nothing larger than the file is ever
made, except records that are compressed, which may grow by the factor that deflate can reach and no more.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

from flambeau._C import _crc32

ALIGNMENT = 64
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_ENTRY = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<4sIQI")
_UTF8 = 0x800
_MAX_INFLATION = 1100  # deflate reaches 1032
_MAX_GROWTH = 100  # of the whole file by its compressed records, beyond the first bytes
_FREE_GROWTH = 64 << 20


class ArchiveError(RuntimeError, UnpicklingError):
    """An archive that contradicts itself, or a file that is none. PyTorch raises one or the other of the two."""


def _bad(text: str) -> ArchiveError:
    return ArchiveError(f"[load] expected a checkpoint in zip format, got {text}")


# ---------------------------------------------------------------------------------------------- writing


class Writer:
    """Writes records under one folder name to an object with `write`."""

    def __init__(self, sink: Any, folder: str = "archive", checksums: bool = True) -> None:
        self._sink, self._folder, self._checksums = sink, folder, checksums
        self._offset = 0
        self._directory = bytearray()
        self._count = 0

    def add(self, name: str, data: Any) -> None:
        """One record; its bytes start at a multiple of the alignment."""
        view = memoryview(data).cast("B")
        size = len(view)
        path = f"{self._folder}/{name}".encode()
        crc = _crc32(view) if self._checksums else 0
        large = size >= 0xFFFFFFFF
        extra = struct.pack("<HHQQ", 1, 16, size, size) if large else b""
        start = self._offset + _LOCAL.size + len(path) + len(extra) + 4
        padding = -start % ALIGNMENT
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        shown = 0xFFFFFFFF if large else size
        version = 45 if large else 0
        header = _LOCAL.pack(b"PK\x03\x04", version, _UTF8, 0, 0, 0, crc, shown, shown, len(path), len(extra))
        far = self._offset >= 0xFFFFFFFF
        wide = b""
        if large or far:
            wide = (struct.pack("<QQ", size, size) if large else b"") + (
                struct.pack("<Q", self._offset) if far else b""
            )
            wide = struct.pack("<HH", 1, len(wide)) + wide
        self._directory += _ENTRY.pack(
            b"PK\x01\x02", version, version, _UTF8, 0, 0, 0, crc, shown, shown, len(path), len(wide), 0, 0, 0, 0,
            0xFFFFFFFF if far else self._offset,
        )  # fmt: skip
        self._directory += path + wide
        self._count += 1
        self._write(header + path + extra)
        self._write(view)

    def finish(self) -> None:
        start, size, count = self._offset, len(self._directory), self._count
        self._write(self._directory)
        if start >= 0xFFFFFFFF or size >= 0xFFFFFFFF or count >= 0xFFFF:
            end64 = self._offset
            self._write(_END64.pack(b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start))
            self._write(_LOCATOR64.pack(b"PK\x06\x07", 0, end64, 1))
        shown = min(count, 0xFFFF)
        self._write(_END.pack(b"PK\x05\x06", 0, 0, shown, shown, min(size, 0xFFFFFFFF), min(start, 0xFFFFFFFF), 0))

    def _write(self, data: Any) -> None:
        self._offset += len(data)
        while (count := self._sink.write(data)) is not None and 0 < count < len(data):
            data = memoryview(data)[count:]  # files without a buffer may take less than they are given


# ---------------------------------------------------------------------------------------------- where bytes come from


class MemorySource:
    """Bytes in memory."""

    def __init__(self, buffer: Any) -> None:
        self.memory = memoryview(buffer).cast("B")
        self.end = self.size = len(self.memory)  # the end is that of what was read, where more may follow

    def read(self, offset: int, count: int) -> bytes:
        if offset < 0 or offset + count > self.size:
            raise _bad(f"{self.size} bytes where {offset + count} are promised")
        return bytes(self.memory[offset : offset + count])

    def read_into(self, offset: int, target: memoryview) -> None:
        if offset < 0 or offset + len(target) > self.size:
            raise _bad(f"{self.size} bytes where {offset + len(target)} are promised")
        target[:] = self.memory[offset : offset + len(target)]

    def close(self) -> None: ...


class FileSource:
    """A file, read where it is asked for."""

    def __init__(self, path: Any) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            self.end = self.size = os.fstat(self.descriptor).st_size
        except BaseException:
            self.close()
            raise

    def read(self, offset: int, count: int) -> bytes:
        if offset < 0 or offset + count > self.size:
            raise _bad(f"{self.size} bytes where {offset + count} are promised")
        pieces = []
        while count:
            piece = os.pread(self.descriptor, min(count, 1 << 30), offset)
            if not piece:
                raise _bad("a file that was truncated while it was read")
            pieces.append(piece)
            offset += len(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_into(self, offset: int, target: memoryview) -> None:
        done, count = 0, len(target)
        if offset < 0 or offset + count > self.size:
            raise _bad(f"{self.size} bytes where {offset + count} are promised")
        while done < count:
            got = os.preadv(self.descriptor, [target[done:]], offset + done)
            if not got:
                raise _bad("a file that was truncated while it was read")
            done += got

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


# ---------------------------------------------------------------------------------------------- reading


class Record:
    """What the directory says of a record."""

    __slots__ = ("name", "method", "crc", "packed", "size", "header", "limit", "_start")

    def __init__(self, name: str, method: int, crc: int, packed: int, size: int, header: int) -> None:
        self.name, self.method, self.crc = name, method, crc
        self.packed, self.size, self.header = packed, size, header
        self.limit = 0  # where the next record or the directory begins
        self._start = -1


class Reader:
    """The records of an archive by their names below its one folder."""

    def __init__(self, source: MemorySource | FileSource) -> None:
        self._source = source
        start, size, count = self._find_directory()
        self._records: dict[str, Record] = {}
        folders = set()
        ordered = []
        for record in self._entries(source.read(start, size), count):
            folder, slash, name = record.name.partition("/")
            if not slash or not name:
                raise _bad(f"a record {record.name!r} outside a folder")
            if name in self._records:
                raise _bad(f"two records named {name!r}")
            folders.add(folder)
            self._records[name] = record
            ordered.append(record)
        if len(folders) != 1:
            raise _bad(f"an archive with {len(folders)} folders")
        inflated = sum(record.size for record in ordered if record.method)
        if inflated > _FREE_GROWTH + _MAX_GROWTH * source.size:
            raise _bad(f"compressed records of {inflated} bytes in a file of {source.size}")
        self.folder = folders.pop()
        ordered.sort(key=lambda r: r.header)
        for record, following in zip(ordered, [*(r.header for r in ordered[1:]), start], strict=True):
            record.limit = following
            if record.header + _LOCAL.size + len(record.name.encode()) + record.packed > following:
                raise _bad(f"the record {record.name!r} overlapping what follows it")

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def names(self) -> list[str]:
        return list(self._records)

    def size(self, name: str) -> int:
        return self._record(name).size

    def start(self, name: str) -> int | None:
        """Where the bytes of a record lie in the file; None when they are compressed."""
        record = self._record(name)
        return self._locate(record) if record.method == 0 else None

    def read(self, name: str) -> bytes:
        """The bytes of a record, whose checksum has been compared."""
        record = self._record(name)
        data = self._source.read(self._locate(record), record.packed)
        if record.method == 8:
            data = self._inflate(record, data)
        if record.crc and _crc32(data) != record.crc:
            raise _bad(f"the record {record.name!r} with a wrong checksum: the file is damaged")
        return data

    def read_into(self, name: str, target: memoryview) -> None:
        """Fills memory with the bytes of a record, which must have exactly that size."""
        record = self._record(name)
        if record.method == 8:
            target[:] = self.read(name)
            return
        self._source.read_into(self._locate(record), target)
        if record.crc and _crc32(target) != record.crc:
            raise _bad(f"the record {record.name!r} with a wrong checksum: the file is damaged")

    def _record(self, name: str) -> Record:
        record = self._records.get(name)
        if record is None:
            raise _bad(f"no record {name!r} in it")
        return record

    def _locate(self, record: Record) -> int:
        if record._start < 0:
            fields = _LOCAL.unpack(self._source.read(record.header, _LOCAL.size))
            start = record.header + _LOCAL.size + fields[9] + fields[10]
            if fields[0] != b"PK\x03\x04" or start + record.packed > record.limit:
                raise _bad(f"the record {record.name!r} without a header at its place")
            record._start = start
        return record._start

    def _inflate(self, record: Record, data: bytes) -> bytes:
        import zlib

        unpacker = zlib.decompressobj(-15)
        try:
            plain = unpacker.decompress(data, record.size + 1)
        except zlib.error as error:
            raise _bad(f"the record {record.name!r} that does not decompress ({error})") from None
        if len(plain) != record.size:
            raise _bad(f"the record {record.name!r} that is not as long as promised")
        return plain

    def _find_directory(self) -> tuple[int, int, int]:
        """Offset and size of the directory, and the number of its entries."""
        total = self._source.size
        if total < _END.size:
            raise _bad(f"a file of {total} bytes")
        tail_size = min(total, _END.size + 0xFFFF)
        tail = self._source.read(total - tail_size, tail_size)
        at = tail.rfind(b"PK\x05\x06", 0, len(tail) - _END.size + 4)
        if at < 0:
            raise _bad("a file without a directory at its end: it is truncated, or of another format")
        _, disk, start_disk, here, count, size, start, _ = _END.unpack_from(tail, at)
        end = total - tail_size + at
        limit = end
        if count == 0xFFFF or size == 0xFFFFFFFF or start == 0xFFFFFFFF or here == 0xFFFF:
            locator = end - _LOCATOR64.size
            if locator < 0:
                raise _bad("a damaged directory")
            magic, _, at64, _ = _LOCATOR64.unpack(self._source.read(locator, _LOCATOR64.size))
            if magic != b"PK\x06\x07" or at64 + _END64.size > total:
                raise _bad("a damaged directory")
            magic, _, _, _, disk, start_disk, here, count, size, start = _END64.unpack(
                self._source.read(at64, _END64.size)
            )
            if magic != b"PK\x06\x06":
                raise _bad("a damaged directory")
            limit = at64
        if disk or start_disk or here != count:
            raise _bad("an archive in several parts")
        if start + size > limit or count * _ENTRY.size > size:
            raise _bad("a directory that lies outside the file")
        return start, size, count

    def _entries(self, directory: bytes, count: int) -> Iterator[Record]:
        at = 0
        for _ in range(count):
            if at + _ENTRY.size > len(directory):
                raise _bad("a directory that ends too early")
            fields = _ENTRY.unpack_from(directory, at)
            magic, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size, comment_size = fields[:13]
            header = fields[16]
            at += _ENTRY.size
            following = at + name_size + extra_size + comment_size
            if magic != b"PK\x01\x02" or following > len(directory):
                raise _bad("a damaged directory")
            try:
                name = directory[at : at + name_size].decode()
            except UnicodeDecodeError:
                raise _bad("a record whose name is not text") from None
            extra = directory[at + name_size : at + name_size + extra_size]
            if 0xFFFFFFFF in (packed, size, header):
                packed, size, header = self._widen(extra, packed, size, header)
            if flags & 0x41:
                raise _bad("an encrypted record")
            if method not in (0, 8):
                raise _bad(f"a record compressed by method {method}")
            if (method == 0 and packed != size) or size > packed * _MAX_INFLATION + 64:
                raise _bad(f"the record {name!r} with sizes that contradict each other")
            yield Record(name, method, crc, packed, size, header)
            at = following

    @staticmethod
    def _widen(extra: bytes, packed: int, size: int, header: int) -> tuple[int, int, int]:
        """Numbers of 64 bits that did not fit into the entry itself."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            at += 4
            if kind == 1:
                body = extra[at : at + length]
                values = list(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
                try:
                    size = values.pop(0) if size == 0xFFFFFFFF else size
                    packed = values.pop(0) if packed == 0xFFFFFFFF else packed
                    header = values.pop(0) if header == 0xFFFFFFFF else header
                except IndexError:
                    raise _bad("a damaged directory") from None
                break
            at += length
        return packed, size, header
