"""Lite-interpreter files: an archive with, beside its source, the methods as instructions for a register machine.

A method's calls are inlined. Each value of the graph has a register; instructions load operands onto a stack, run an operator on them and store its results. Reading such a
file takes the source, which says the same.
"""

from __future__ import annotations

from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._archive.pickling import PickleWriter
from flambeau.jit._ir import Block, Graph, Node, Value
from flambeau.jit._passes import inlined
from flambeau.jit._schemas import Signature

VERSION = 8
_INSTRUCTIONS = {
    "aten::__is__": "__IS__",
    "aten::__isnot__": "__ISNOT__",
    "aten::dim": "DIM",
    "prim::dtype": "DTYPE",
    "prim::device": "DEVICE",
    "aten::__not__": "__NOT__",
}


class Bytecode:
    """The instructions of one method, with its tables."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name
        self.instructions: list[tuple[str, int, int]] = []
        self.operators: list[tuple[str, str, int]] = []
        self.constants: list[Any] = []
        self.types: list[str] = []
        self.registers: dict[int, int] = {}

    def compile(self) -> None:
        inputs = self.graph._param._outputs
        self.store(inputs)
        self.block(self.graph)
        for value in self.graph._return._inputs:
            self.load(value)
        self.emit("RET")

    # ------------------------------------------------------------------ pieces

    def emit(self, name: str, x: int = 0, n: int = 0) -> int:
        self.instructions.append((name, x, n))
        return len(self.instructions) - 1

    def store(self, values: list[Value]) -> None:
        """Take values off the stack into registers of their own."""
        first = len(self.registers) + 1
        for offset, value in enumerate(values):
            self.registers[id(value)] = first + offset
        if len(values) == 1:
            self.emit("STORE", first)
        elif values:
            self.emit("STOREN", first, len(values))

    def load(self, value: Value) -> None:
        node = value.node()
        if node._kind == "prim::Constant":
            self.constant(node.attributes.get("value", ("", None))[1])
        elif node._kind == "prim::Uninitialized":
            self.emit("UN_INITIALIZED")
        else:
            self.emit("LOAD", self.registers[id(value)])

    def constant(self, value: Any) -> None:
        for index, other in enumerate(self.constants):
            if other is value or (
                type(other) is type(value) and isinstance(value, (int, str, bool)) and other == value
            ):
                self.emit("LOADC", index)
                return
        self.constants.append(value)
        self.emit("LOADC", len(self.constants) - 1)

    def type_index(self, kind: T.JitType) -> int:
        text = _type_text(kind)
        if text not in self.types:
            self.types.append(text)
        return self.types.index(text)

    def refuse(self, node: Node) -> Exception:
        place = "" if node.range is None else f":\n{node.range.highlight()}"
        return RuntimeError(
            f"[lite interpreter] expected operators that it can run, got {node._kind} in {self.name}{place}"
        )

    # ------------------------------------------------------------------ nodes

    def block(self, block: Block) -> None:
        for node in block._nodes:
            if node._kind not in ("prim::Constant", "prim::Uninitialized"):
                self.node(node)

    def node(self, node: Node) -> None:
        handler = getattr(self, "prim_" + node._kind[6:], None) if node._kind.startswith("prim::") else None
        if handler is not None:
            handler(node)
            return
        for value in node._inputs:
            self.load(value)
        self.operator(node)
        self.store(node._outputs)

    def operator(self, node: Node) -> None:
        count = len(node._inputs)
        if node._kind in _INSTRUCTIONS and not node._blocks:
            self.emit(_INSTRUCTIONS[node._kind])
        elif node._kind == "aten::format":
            self.emit("FORMAT", count)
        elif node._kind == "aten::__getitem__" and isinstance(node._inputs[0].type(), T.DictType):
            self.emit("DICT_INDEX")
        elif isinstance(node.call, Signature):
            entry = (node._kind, node.call.overload_name, -1 if node.call.variadic else count)
            if entry not in self.operators:
                self.operators.append(entry)
            index = self.operators.index(entry)
            self.emit("OPN" if node.call.variadic else "OP", index, count if node.call.variadic else 0)
        else:
            raise self.refuse(node)

    def _constructed(self, node: Node, name: str, x: int, n: int) -> None:
        for value in node._inputs:
            self.load(value)
        self.emit(name, x, n)
        self.store(node._outputs)

    def prim_ListConstruct(self, node: Node) -> None:
        self._constructed(node, "LIST_CONSTRUCT", self.type_index(node._outputs[0].type()), len(node._inputs))

    def prim_DictConstruct(self, node: Node) -> None:
        self._constructed(node, "DICT_CONSTRUCT", self.type_index(node._outputs[0].type()), len(node._inputs))

    def prim_TupleConstruct(self, node: Node) -> None:
        kind = node._outputs[0].type()
        assert isinstance(kind, T.TupleType)
        if kind.name is not None:
            self._constructed(node, "NAMED_TUPLE_CONSTRUCT", self.type_index(kind), len(node._inputs))
        else:
            self._constructed(node, "TUPLE_CONSTRUCT", len(node._inputs), 0)

    def prim_TupleIndex(self, node: Node) -> None:
        self._constructed(node, "TUPLE_INDEX", 0, 0)

    def prim_TupleUnpack(self, node: Node) -> None:
        for index, output in enumerate(node._outputs):
            self.load(node._inputs[0])
            self.constant(index)
            self.emit("TUPLE_INDEX")
            self.store([output])

    def prim_ListUnpack(self, node: Node) -> None:
        self._constructed(node, "LIST_UNPACK", len(node._outputs), 0)

    def prim_unchecked_cast(self, node: Node) -> None:
        self.load(node._inputs[0])
        self.store(node._outputs)

    prim_annotate = prim_unchecked_cast

    def prim_RaiseException(self, node: Node) -> None:
        for value in node._inputs:
            self.load(value)
        self.emit("RAISE_EXCEPTION")

    def prim_CreateObject(self, node: Node) -> None:
        self._constructed(node, "CREATE_OBJECT", self.type_index(node._outputs[0].type()), 0)

    def prim_isinstance(self, node: Node) -> None:
        first = len(self.types)
        kinds = node.attribute("types")
        self.types += [_type_text(k) for k in kinds]
        self._constructed(node, "ISINSTANCE", first, len(kinds))

    def _slot(self, node: Node) -> int:
        kind = node._inputs[0].type()
        if not isinstance(kind, T.ClassType):
            raise self.refuse(node)
        return list(kind.attributes).index(node.attribute("name"))

    def prim_GetAttr(self, node: Node) -> None:
        self._constructed(node, "GET_ATTR", self._slot(node), 0)

    def prim_SetAttr(self, node: Node) -> None:
        self._constructed(node, "SET_ATTR", self._slot(node), 0)

    def prim_If(self, node: Node) -> None:
        self.load(node._inputs[0])
        branch = self.emit("JF")
        self._branch(node._blocks[0])
        jump = self.emit("JMP")
        self.instructions[branch] = ("JF", len(self.instructions) - branch, 0)
        self._branch(node._blocks[1])
        self.instructions[jump] = ("JMP", len(self.instructions) - jump, 0)
        self.store(node._outputs)

    def _branch(self, block: Block) -> None:
        self.block(block)
        for value in block._return._inputs:
            self.load(value)

    def prim_Loop(self, node: Node) -> None:
        self.constant(0)
        for value in node._inputs:
            self.load(value)
        block = node._blocks[0]
        start = self.emit("LOOP")
        self.store(block._param._outputs)
        self._branch(block)
        self.emit("JMP", start - len(self.instructions))
        self.instructions[start] = ("LOOP", len(self.instructions) - start, len(node._inputs))
        self.store(node._outputs)

    # ------------------------------------------------------------------ the record

    def record(self, schema: Signature) -> tuple[Any, ...]:
        table = (
            ("instructions", tuple(self.instructions)),
            (
                "operators",
                tuple(
                    (name, overload) if count < 0 else (name, overload, count)
                    for name, overload, count in self.operators
                ),
            ),
            ("constants", tuple(self.constants)),
            ("types", tuple(self.types)),
            ("register_size", len(self.registers)),
        )
        arguments = tuple(
            (("name", a.name), ("type", _plain(a.type)), ("default_value", a.default_value)) for a in schema.arguments
        )
        returns = ((("name", ""), ("type", _plain(schema.result_type())), ("default_value", None)),)
        return self.name, table, (("arguments", arguments), ("returns", returns))


def _type_text(kind: T.JitType) -> str:
    """A type as instructions name it: named tuples with their fields, as files have no classes of them."""
    text = kind.annotation_str
    if isinstance(kind, T.TupleType) and kind.name is not None:
        fields = ",".join(f"[{name}, {_type_text(item)}]" for name, item in zip(kind.fields, kind.items))
        return f"{kind.name}[NamedTuple, [{fields}]]"
    for part in kind.contained():
        text = text.replace(part.annotation_str, _type_text(part))
    return text


def _plain(kind: T.JitType) -> str:
    return "Tensor" if isinstance(kind, T.TensorType) else kind.annotation_str


def bytecode(module: Any) -> tuple[Any, ...]:
    """The version and the methods of a module as instructions."""
    kind: T.ClassType = module.__dict__["_script_type"]
    records: list[Any] = [VERSION]
    for name, method in kind.methods.items():
        if name.startswith("__"):
            continue
        method.ensure()
        code = Bytecode(inlined(method.graph), f"{kind.name}.{name}")
        code.compile()
        records.append(code.record(method.schema))
    return tuple(records)


def save_for_lite_interpreter(module: Any, f: Any, extra: dict[str, Any] | None = None) -> None:
    """Write an archive with the methods of a module as instructions besides."""
    from flambeau.jit._archive.write import save

    def add(constants: dict[int, tuple[str, Any]]) -> list[tuple[str, bytes]]:
        writer = PickleWriter(constants)
        writer.value(bytecode(module), T.ANY)
        return [("bytecode.pkl", writer.finish())]

    save(module, f, extra, add)


def load_bytecode(f: Any) -> Any:
    """What `bytecode.pkl` of a file says."""
    from flambeau import serialization
    from flambeau.jit._archive.read import CodeReader, _Prefixed, unpickle

    with serialization._opened(f) as source:
        reader = serialization.Reader(source)
        if "bytecode.pkl" not in reader:
            raise RuntimeError("[lite interpreter] expected a file with bytecode.pkl, got an archive without it")
        code = CodeReader(reader.read, reader.names())
        return unpickle(reader.read("bytecode.pkl"), _Prefixed(reader, None).storage, code)
