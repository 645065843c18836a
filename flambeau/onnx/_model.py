"""ONNX models as plain objects, and their bytes in protobuf's wire format.

The few messages of ONNX are written directly: exporting needs no package, and a model of two gigabytes is not copied
through Python objects. `Value` is a tensor in the graph; nodes refer to values, so renaming one renames it everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import flambeau as fl
from flambeau import _C
from flambeau.utils._protobuf import data, integer, single

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


# ---------------------------------------------------------------------------------------------- messages


def _entries(field: int, table: dict[str, str]) -> bytes:
    return b"".join(data(field, data(1, key) + data(2, value)) for key, value in table.items())


External = Callable[[str, Any], tuple[str, int, int] | None]


def tensor_bytes(name: str, tensor: Any, external: External | None = None) -> bytes:
    """A TensorProto. `external` may take the data elsewhere: to a file, an offset in it and a length."""
    head = b"".join(integer(1, size) for size in tensor.shape) + integer(2, DTYPE_NUMBER[tensor.dtype])
    head += data(8, name)
    place = external(name, tensor) if external is not None else None
    if place is not None:
        location, offset, length = place
        entries = {"location": location, "offset": str(offset), "length": str(length)}
        return head + _entries(13, entries) + integer(14, 1)
    return head + data(9, raw_bytes(tensor))


def raw_bytes(tensor: Any) -> bytes:
    """The elements of a tensor in order."""
    plain = tensor.detach().cpu().contiguous()
    if not plain.numel():
        return b""
    start = plain.storage_offset() * plain.element_size()
    memory = memoryview(_C._storage_memory(plain.untyped_storage()._bytes)).cast("B")
    return bytes(memory[start : start + plain.numel() * plain.element_size()])


def _attribute(name: str, value: Any, external: External | None) -> bytes:
    head = data(1, name)
    if isinstance(value, (bool, int)):
        return head + integer(3, int(value)) + integer(20, 2)
    if isinstance(value, float):
        return head + single(2, value) + integer(20, 1)
    if isinstance(value, str):
        return head + data(4, value) + integer(20, 3)
    if isinstance(value, fl.Tensor):
        return head + data(5, tensor_bytes("", value)) + integer(20, 4)
    if isinstance(value, Graph):
        return head + data(6, graph_bytes(value, external)) + integer(20, 5)
    items = list(value)
    if items and isinstance(items[0], str):
        return head + b"".join(data(9, item) for item in items) + integer(20, 8)
    if any(isinstance(item, float) for item in items):
        packed = b"".join(single(7, item) for item in items)
        return head + packed + integer(20, 6)
    return head + b"".join(integer(8, item) for item in items) + integer(20, 7)


def _node(node: Node, external: External | None) -> bytes:
    parts = [data(1, "" if value is None else value.name) for value in node.inputs]
    parts += [data(2, value.name) for value in node.outputs]
    parts += [data(3, node.name), data(4, node.op_type)]
    parts += [data(5, _attribute(key, value, external)) for key, value in node.attributes.items() if value is not None]
    if node.domain:
        parts.append(data(7, node.domain))
    parts.append(_entries(9, node.metadata))
    return b"".join(parts)


def _value_info(value: Value) -> bytes:
    tensor = b"" if value.dtype is None else integer(1, DTYPE_NUMBER[value.dtype])
    if value.shape is not None:
        dims = [integer(1, size) if isinstance(size, int) else data(2, size) for size in value.shape]
        tensor += data(2, b"".join(data(1, dim) for dim in dims))
    return data(1, value.name) + data(2, data(1, tensor))


def graph_bytes(graph: Graph, external: External | None = None, values: Iterable[Value] = ()) -> bytes:
    parts = [data(1, _node(node, external)) for node in graph.nodes]
    parts.append(data(2, graph.name))
    parts += [data(5, tensor_bytes(v.name, tensor, external)) for v, tensor in graph.initializers.values()]
    parts += [data(11, _value_info(value)) for value in graph.inputs]
    parts += [data(12, _value_info(value)) for value in graph.outputs]
    parts += [data(13, _value_info(value)) for value in values]
    return b"".join(parts)


def model_bytes(model: Model, external: External | None = None) -> bytes:
    """The bytes of a ModelProto."""
    from flambeau.version import __version__

    known = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    inner = [v for node in model.graph.nodes for v in node.outputs if v.dtype is not None and v.shape is not None]
    described = [value for value in inner if id(value) not in known and value.dtype in DTYPE_NUMBER]
    parts = [integer(1, model.ir_version), data(2, "pytorch"), data(3, f"flambeau {__version__}")]
    parts.append(data(7, graph_bytes(model.graph, external, described)))
    for domain, version in {"": model.opset, **model.domains}.items():
        parts.append(data(8, data(1, domain) + integer(2, version)))
    parts.append(_entries(14, model.metadata))
    parts += [data(25, function) for function in model.functions.values()]
    return b"".join(parts)
