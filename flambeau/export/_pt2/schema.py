"""The version of the schema, and the numbers that it has for dtypes, layouts and memory formats."""

from __future__ import annotations

from typing import Any

import flambeau as fl

SCHEMA_VERSION = (8, 20)
ATEN_VERSION = 10  # of ATen's set of operators
TORCH_VERSION = "2.13.0"  # the release whose layout this is
POSITIONAL, KEYWORD = 1, 2

_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64",
    9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16", 29: "float8_e4m3fn",
    30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
DTYPE_OF = {number: getattr(fl, name) for number, name in _DTYPES.items() if hasattr(fl, name)}
DTYPE_NUMBER = {dtype: number for number, dtype in DTYPE_OF.items()}
_LAYOUTS = {1: "sparse_coo", 2: "sparse_csr", 3: "sparse_csc", 4: "sparse_bsr", 5: "sparse_bsc", 7: "strided"}
LAYOUT_OF = {number: getattr(fl, name) for number, name in _LAYOUTS.items() if hasattr(fl, name)}
LAYOUT_NUMBER = {layout: number for number, layout in LAYOUT_OF.items()}
_FORMATS = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
FORMAT_OF = {number: getattr(fl, name) for number, name in _FORMATS.items()}
FORMAT_NUMBER = {memory_format: number for number, memory_format in FORMAT_OF.items()}


class SerializeError(RuntimeError):
    """A program that the format cannot hold, or a file that does not hold one."""


def looked_up(table: dict[int, Any], number: Any, what: str) -> Any:
    """The entry of a table read from a file."""
    try:
        return table[number]
    except (KeyError, TypeError):
        raise SerializeError(f"[export.load] expected a known {what}, got {number!r}") from None
