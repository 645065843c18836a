"""ONNX models as plain objects, and their bytes in protobuf's wire format.

The few messages of ONNX are written directly: exporting needs no package, and a model of two gigabytes is not copied
through Python objects. `Value` is a tensor in the graph; nodes refer to values, so renaming one renames it everywhere.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fl
from flambeau import _C

_NUMBERS = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "float64": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16, "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18, "float8_e5m2": 19, "float8_e5m2fnuz": 20,
}  # fmt: skip
DTYPE_NUMBER = {getattr(fl, name): number for name, number in _NUMBERS.items() if hasattr(fl, name)}
DTYPE_OF = {number: dtype for dtype, number in DTYPE_NUMBER.items()}


class Value:
    """A tensor of the graph. Sizes are numbers, or text where they vary."""

    __slots__ = ("name", "dtype", "shape", "is_size")

    def __init__(self, name: str, dtype: Any = None, shape: Any = None, is_size: bool = False) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.is_size = is_size  # a size, held as a tensor with one element

    @property
    def rank(self) -> int:
        if self.shape is None:
            raise ValueError(f"[onnx] expected a value of known rank, got {self.name}")
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Value({self.name}, {self.dtype}, {self.shape})"


@dataclasses.dataclass
class Node:
    op_type: str
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: dict[str, Any]
    domain: str = ""
    name: str = ""
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Graph:
    name: str
    nodes: list[Node] = dataclasses.field(default_factory=list)
    inputs: list[Value] = dataclasses.field(default_factory=list)
    outputs: list[Value] = dataclasses.field(default_factory=list)
    initializers: dict[str, tuple[Value, Any]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Model:
    graph: Graph
    opset: int
    domains: dict[str, int] = dataclasses.field(default_factory=dict)
    functions: dict[tuple[str, str], bytes] = dataclasses.field(default_factory=dict)
    metadata: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def ir_version(self) -> int:
        return 11 if self.opset >= 23 else 10


# ---------------------------------------------------------------------------------------------- the wire format


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _held(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, value: str) -> bytes:
    return _held(field, value.encode())


def _entries(field: int, table: dict[str, str]) -> bytes:
    return b"".join(_held(field, _text(1, key) + _text(2, value)) for key, value in table.items())


External = Callable[[str, Any], tuple[str, int, int] | None]


def tensor_bytes(name: str, tensor: Any, external: External | None = None) -> bytes:
    """A TensorProto. `external` may take the data elsewhere: to a file, an offset in it and a length."""
    head = b"".join(_integer(1, size) for size in tensor.shape) + _integer(2, DTYPE_NUMBER[tensor.dtype])
    head += _text(8, name)
    place = external(name, tensor) if external is not None else None
    if place is not None:
        location, offset, length = place
        entries = {"location": location, "offset": str(offset), "length": str(length)}
        return head + _entries(13, entries) + _integer(14, 1)
    return head + _held(9, raw_bytes(tensor))


def raw_bytes(tensor: Any) -> bytes:
    """The elements of a tensor in order."""
    plain = tensor.detach().cpu().contiguous()
    if not plain.numel():
        return b""
    start = plain.storage_offset() * plain.element_size()
    memory = memoryview(_C._storage_memory(plain.untyped_storage()._bytes)).cast("B")
    return bytes(memory[start : start + plain.numel() * plain.element_size()])


def _attribute(name: str, value: Any, external: External | None) -> bytes:
    head = _text(1, name)
    if isinstance(value, (bool, int)):
        return head + _integer(3, int(value)) + _integer(20, 2)
    if isinstance(value, float):
        return head + _varint(2 << 3 | 5) + struct.pack("<f", value) + _integer(20, 1)
    if isinstance(value, str):
        return head + _text(4, value) + _integer(20, 3)
    if isinstance(value, fl.Tensor):
        return head + _held(5, tensor_bytes("", value)) + _integer(20, 4)
    if isinstance(value, Graph):
        return head + _held(6, graph_bytes(value, external)) + _integer(20, 5)
    items = list(value)
    if items and isinstance(items[0], str):
        return head + b"".join(_text(9, item) for item in items) + _integer(20, 8)
    if any(isinstance(item, float) for item in items):
        packed = b"".join(_varint(7 << 3 | 5) + struct.pack("<f", item) for item in items)
        return head + packed + _integer(20, 6)
    return head + b"".join(_integer(8, item) for item in items) + _integer(20, 7)


def _node(node: Node, external: External | None) -> bytes:
    parts = [_text(1, "" if value is None else value.name) for value in node.inputs]
    parts += [_text(2, value.name) for value in node.outputs]
    parts += [_text(3, node.name), _text(4, node.op_type)]
    parts += [_held(5, _attribute(key, value, external)) for key, value in node.attributes.items() if value is not None]
    if node.domain:
        parts.append(_text(7, node.domain))
    parts.append(_entries(9, node.metadata))
    return b"".join(parts)


def _value_info(value: Value) -> bytes:
    tensor = b"" if value.dtype is None else _integer(1, DTYPE_NUMBER[value.dtype])
    if value.shape is not None:
        dims = [_integer(1, size) if isinstance(size, int) else _text(2, size) for size in value.shape]
        tensor += _held(2, b"".join(_held(1, dim) for dim in dims))
    return _text(1, value.name) + _held(2, _held(1, tensor))


def graph_bytes(graph: Graph, external: External | None = None, values: Iterable[Value] = ()) -> bytes:
    parts = [_held(1, _node(node, external)) for node in graph.nodes]
    parts.append(_text(2, graph.name))
    parts += [_held(5, tensor_bytes(v.name, tensor, external)) for v, tensor in graph.initializers.values()]
    parts += [_held(11, _value_info(value)) for value in graph.inputs]
    parts += [_held(12, _value_info(value)) for value in graph.outputs]
    parts += [_held(13, _value_info(value)) for value in values]
    return b"".join(parts)


def model_bytes(model: Model, external: External | None = None) -> bytes:
    """The bytes of a ModelProto."""
    from flambeau.version import __version__

    known = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    inner = [v for node in model.graph.nodes for v in node.outputs if v.dtype is not None and v.shape is not None]
    described = [value for value in inner if id(value) not in known and value.dtype in DTYPE_NUMBER]
    parts = [_integer(1, model.ir_version), _text(2, "pytorch"), _text(3, f"flambeau {__version__}")]
    parts.append(_held(7, graph_bytes(model.graph, external, described)))
    for domain, version in {"": model.opset, **model.domains}.items():
        parts.append(_held(8, _text(1, domain) + _integer(2, version)))
    parts.append(_entries(14, model.metadata))
    parts += [_held(25, data) for data in model.functions.values()]
    return b"".join(parts)
