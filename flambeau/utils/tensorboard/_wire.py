"""Event files: records with their checksums, whose payloads are protocol buffer messages."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from flambeau._C import _crc32c
from flambeau.utils._protobuf import data, double, doubles, fields, floats, integer, single

__all__ = ["data", "double", "doubles", "fields", "floats", "integer", "record", "records", "single"]


def _masked(raw: bytes) -> bytes:
    crc = _crc32c(raw)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(payload: bytes) -> bytes:
    """A payload with its length and both checksums."""
    length = struct.pack("<Q", len(payload))
    return length + _masked(length) + payload + _masked(payload)


def records(raw: bytes) -> Iterator[bytes]:
    """The payloads of a file; a record that is still being written ends it."""
    at = 0
    while at + 12 <= len(raw):
        length = raw[at : at + 8]
        if raw[at + 8 : at + 12] != _masked(length):
            raise ValueError(f"[tensorboard] expected a record at byte {at}, got a wrong checksum")
        (size,) = struct.unpack("<Q", length)
        payload = raw[at + 12 : at + 12 + size]
        if len(raw) < at + 16 + size:
            return
        if raw[at + 12 + size : at + 16 + size] != _masked(payload):
            raise ValueError(f"[tensorboard] expected whole data at byte {at}, got a wrong checksum")
        yield payload
        at += 16 + size
