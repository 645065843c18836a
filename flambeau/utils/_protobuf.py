"""Fields of protocol buffer messages as bytes, without a library: events for TensorBoard and ONNX models are written with them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Seven bits to a byte, lowest first; negative numbers as 64 bits."""
    value &= (1 << 64) - 1
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _DOUBLE) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | _FLOAT) + struct.pack("<f", value)


def data(field: int, value: bytes | str) -> bytes:
    """Bytes, text, or a message."""
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | _BYTES) + varint(len(raw)) + raw


def doubles(field: int, values: Iterable[float]) -> bytes:
    values = list(values)
    return data(field, struct.pack(f"<{len(values)}d", *values))


def floats(field: int, values: Iterable[float]) -> bytes:
    values = list(values)
    return data(field, struct.pack(f"<{len(values)}f", *values))


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers of a message with their values: int, float, or bytes."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = number()
        kind = tag & 7
        if kind == _VARINT:
            yield tag >> 3, number()
        elif kind == _DOUBLE:
            yield tag >> 3, struct.unpack_from("<d", message, at)[0]
            at += 8
        elif kind == _FLOAT:
            yield tag >> 3, struct.unpack_from("<f", message, at)[0]
            at += 4
        elif kind == _BYTES:
            size = number()
            if at + size > len(message):
                raise ValueError("[protobuf] expected a whole message, got a truncated one")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            raise ValueError(f"[protobuf] expected a known wire type, got {kind}")
