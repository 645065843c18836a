"""The reference device's memory: elements of a tensor as a list of Python numbers, and back.

Blocks are bytes of this process. Lists are in the order of the indices, whatever the strides.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl

_C_TYPES: dict[Any, tuple[Any, int]] = {  # ctypes type, and how many of them make an element
    fl.bool: (ctypes.c_uint8, 1),
    fl.uint8: (ctypes.c_uint8, 1),
    fl.int8: (ctypes.c_int8, 1),
    fl.int16: (ctypes.c_int16, 1),
    fl.int32: (ctypes.c_int32, 1),
    fl.int64: (ctypes.c_int64, 1),
    fl.float16: (ctypes.c_uint16, 1),
    fl.bfloat16: (ctypes.c_uint16, 1),
    fl.float32: (ctypes.c_float, 1),
    fl.float64: (ctypes.c_double, 1),
    fl.complex32: (ctypes.c_uint16, 2),
    fl.complex64: (ctypes.c_float, 2),
    fl.complex128: (ctypes.c_double, 2),
}


def _half_to(x: float) -> int:
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return 0x7C00 if x > 0 else 0xFC00


def _brain_to(x: float) -> int:
    bits = struct.unpack("<I", bytes(ctypes.c_float(x)))[0]
    if x != x:
        return 0x7FC0
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to the nearest, ties to even


def _half_from(bits: int) -> float:
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def _brain_from(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


# How the numbers of an element are stored, where C has no type for them.
_STORED: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    fl.float16: (_half_from, _half_to),
    fl.complex32: (_half_from, _half_to),
    fl.bfloat16: (_brain_from, _brain_to),
    fl.bool: (bool, bool),
}


def _as_it_is(x: Any) -> Any:
    return x


def _integer(x: Any) -> int:
    if isinstance(x, complex):
        x = x.real
    if isinstance(x, float) and not math.isfinite(x):
        return -(1 << 63)
    return int(x)


def _real(x: Any) -> float:
    if isinstance(x, complex):
        x = x.real
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def converter(dtype: Any) -> Callable[[Any], Any]:
    """What turns a Python number into one of the dtype's kind."""
    if dtype is fl.bool:
        return lambda x: x != 0
    if dtype.is_complex:
        return complex
    return _real if dtype.is_floating_point else _integer


def offsets(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Where each element lies, counted from the first."""
    all_offsets = [0]
    for size, stride in zip(sizes, strides):
        steps = [i * stride for i in range(size)]
        all_offsets = [base + step for base in all_offsets for step in steps]
    return all_offsets


def _window(t: Any) -> tuple[Any, list[int], int]:
    """The elements' memory as an array of C values, the positions in it, and the values for one element."""
    kind, parts = _C_TYPES[t.dtype]
    places = offsets(t.shape, t.stride())
    length = max(places) + 1 if places else 0
    address = t.data_ptr() if places else 0
    return (kind * (length * parts)).from_address(address) if places else [], places, parts


def read(t: Any) -> list[Any]:
    """All elements as Python numbers."""
    memory, places, parts = _window(t)
    decode, _ = _STORED.get(t.dtype, (_as_it_is, _as_it_is))
    if parts == 2:
        return [complex(decode(memory[2 * p]), decode(memory[2 * p + 1])) for p in places]
    return [decode(memory[p]) for p in places]


def write(t: Any, values: Sequence[Any]) -> None:
    """Store one number for each element, converted to the tensor's dtype."""
    memory, places, parts = _window(t)
    convert = converter(t.dtype)
    _, encode = _STORED.get(t.dtype, (_as_it_is, _as_it_is))
    for place, value in zip(places, values, strict=True):
        number = convert(value)
        if parts == 2:
            memory[2 * place], memory[2 * place + 1] = encode(number.real), encode(number.imag)
        else:
            memory[place] = encode(number)
