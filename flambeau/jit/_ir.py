"""The intermediate form of TorchScript: graphs of nodes in blocks, each value assigned once and typed.

A node has a kind (`aten::add`, `prim::If`), inputs, outputs, attributes and blocks. A graph prints as PyTorch prints it
and can be walked with the same names: `graph.nodes()`, `node.kind()`, `value.type()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau import _C
from flambeau.jit import _types as T


class SourceRange:
    """Where a node comes from: the source, the file, and the part of the text."""

    def __init__(self, source: Any, start: int, end: int, line: int, column: int) -> None:
        self.source, self.start, self.end, self.line, self.column = source, start, end, line, column

    def highlight(self, with_place: bool = True) -> str:
        """The lines around the part, which is underlined."""
        lines = self.source.text.split("\n")
        index = self.line - 1
        last = index + self.source.text[self.start : self.end].count("\n")
        shown = []
        for number in range(max(0, index - 3), min(len(lines), last + 4)):
            text = lines[number]
            shown.append(text)
            if index <= number <= last:
                begin = self.column if number == index else len(text) - len(text.lstrip())
                stop = len(text)
                if number == last:
                    stop = self.end - (self.source.text.rfind("\n", 0, self.end) + 1)
                mark = " " * begin + "~" * max(1, stop - begin)
                shown.append(f"{mark} <--- HERE" if number == last else mark)
        place = f'  File "{self.source.file}", line {self.source.first_line + index}\n' if with_place else ""
        return place + "\n".join(shown)

    def place(self) -> str:
        return f"{self.source.file}:{self.source.first_line + self.line - 1}:{self.column + self.source.indent}"

    def __str__(self) -> str:
        return self.highlight()


class Source:
    """A text with the file and line it starts at; `indent` columns were removed from each line."""

    def __init__(self, text: str, file: str = "<string>", first_line: int = 1, indent: int = 0) -> None:
        self.text, self.file, self.first_line, self.indent = text, file, first_line, indent
        self.starts = [0]
        for line in text.split("\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def range_of(self, node: Any) -> SourceRange:
        """The part of the text that a syntax node covers."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end = getattr(node, "end_lineno", line) or line, getattr(node, "end_col_offset", column) or column
        start = self.starts[min(line, len(self.starts)) - 1] + column
        return SourceRange(self, start, self.starts[min(end_line, len(self.starts)) - 1] + end, line, column)


class Use:
    def __init__(self, user: Node, offset: int) -> None:
        self.user, self.offset = user, offset


class Value:
    """One value of a graph."""

    __slots__ = ("_type", "_name", "_node", "_uses", "offset")

    def __init__(self, node: Node, kind: T.JitType, offset: int) -> None:
        self._node, self._type, self.offset = node, kind, offset
        self._name: str | None = None
        self._uses: list[Use] = []

    def type(self) -> T.JitType:
        return self._type

    def setType(self, kind: T.JitType) -> Value:
        self._type = kind
        return self

    def inferTypeFrom(self, value: Any) -> None:
        self._type = T.TensorType(value)

    def node(self) -> Node:
        return self._node

    def uses(self) -> list[Use]:
        return self._uses

    def hasUses(self) -> bool:
        return bool(self._uses)

    def hasDebugName(self) -> bool:
        return self._name is not None and not self._name.isdigit()

    def debugName(self) -> str:
        if self._name is None:
            self._name = self._node.graph.fresh_number()
        return self._name

    def unique(self) -> int:
        return self._node.graph.number_of(self)

    def setDebugName(self, name: str) -> Value:
        self._name = self._node.graph.fresh_name(name)
        return self

    def offset_(self) -> int:
        return self.offset

    def replaceAllUsesWith(self, other: Value) -> None:
        for use in list(self._uses):
            use.user.replaceInput(use.offset, other)

    def requires_grad(self) -> bool:
        return isinstance(self._type, T.TensorType) and self._type.requires_grad()

    def isCompleteTensor(self) -> bool:
        return isinstance(self._type, T.TensorType) and self._type.dtype() is not None

    def toIValue(self) -> Any:
        return self._node.attributes.get("value", (None, None))[1] if self._node._kind == "prim::Constant" else None

    def __repr__(self) -> str:
        return f"{self.debugName()} defined in ({self._node})"

    __str__ = __repr__


class Node:
    """One operation."""

    __slots__ = (
        "graph",
        "_kind",
        "_inputs",
        "_outputs",
        "_blocks",
        "attributes",
        "range",
        "callers",
        "owner",
        "call",
        "_scope",
    )

    def __init__(self, graph: Graph, kind: str) -> None:
        self.graph, self._kind = graph, kind
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._blocks: list[Block] = []
        self.attributes: dict[str, tuple[str, Any]] = {}
        self.range: SourceRange | None = None
        self.callers: tuple[SourceRange, ...] = ()  # calls that were replaced by what they run, the outermost first
        self.owner: Block | None = None
        self.call: Any = None  # the signature of an operator, the function or method of a call
        self._scope: str = graph.scope

    # ------------------------------------------------------------------ structure

    def kind(self) -> str:
        return self._kind

    def inputs(self) -> Iterator[Value]:
        return iter(list(self._inputs))

    def outputs(self) -> Iterator[Value]:
        return iter(list(self._outputs))

    def input(self, index: int = 0) -> Value:
        return self._inputs[index]

    def output(self) -> Value:
        return self._outputs[0]

    def inputsAt(self, index: int) -> Value:
        return self._inputs[index]

    def outputsAt(self, index: int) -> Value:
        return self._outputs[index]

    def inputsSize(self) -> int:
        return len(self._inputs)

    def outputsSize(self) -> int:
        return len(self._outputs)

    def hasMultipleOutputs(self) -> bool:
        return len(self._outputs) > 1

    def blocks(self) -> Iterator[Block]:
        return iter(list(self._blocks))

    def owningBlock(self) -> Block | None:
        return self.owner

    def owningGraph(self) -> Graph:
        return self.graph

    def addInput(self, value: Value) -> Value:
        value._uses.append(Use(self, len(self._inputs)))
        self._inputs.append(value)
        return value

    def replaceInput(self, index: int, value: Value) -> None:
        old = self._inputs[index]
        old._uses[:] = [u for u in old._uses if u.user is not self or u.offset != index]
        self._inputs[index] = value
        value._uses.append(Use(self, index))

    def removeInput(self, index: int) -> None:
        remaining = [v for i, v in enumerate(self._inputs) if i != index]
        self.removeAllInputs()
        for value in remaining:
            self.addInput(value)

    def removeAllInputs(self) -> None:
        for value in self._inputs:
            value._uses[:] = [u for u in value._uses if u.user is not self]
        self._inputs.clear()

    def addOutput(self, kind: T.JitType | None = None, name: str | None = None) -> Value:
        value = Value(self, kind if kind is not None else T.TENSOR, len(self._outputs))
        self._outputs.append(value)
        if name:
            value.setDebugName(name)
        return value

    def eraseOutput(self, index: int) -> None:
        del self._outputs[index]
        for place, value in enumerate(self._outputs):
            value.offset = place

    def addBlock(self) -> Block:
        block = Block(self.graph, self)
        self._blocks.append(block)
        return block

    def destroy(self) -> None:
        """Take the node out of its graph; nothing may use it."""
        for block in self._blocks:
            for node in list(block._nodes):
                node.destroy()
            block._return.removeAllInputs()
        self.removeAllInputs()
        if self.owner is not None:
            self.owner._nodes.remove(self)
            self.owner = None

    def isBefore(self, other: Node) -> bool:
        assert self.owner is not None
        return self.owner._nodes.index(self) < self.owner._nodes.index(other)

    # ------------------------------------------------------------------ attributes

    def hasAttribute(self, name: str) -> bool:
        return name in self.attributes

    def mustBeNone(self) -> bool:
        """Whether the only value of the node is None."""
        return len(self._outputs) == 1 and self._outputs[0].type() == T.NONE

    def hasAttributes(self) -> bool:
        return bool(self.attributes)

    def attributeNames(self) -> list[str]:
        return list(self.attributes)

    def kindOf(self, name: str) -> str:
        return self.attributes[name][0]

    def attribute(self, name: str) -> Any:
        if name not in self.attributes:
            raise RuntimeError(f"[jit] expected a node with the attribute {name!r}, got {self._kind}")
        return self.attributes[name][1]

    i = f = s = t = g = ival = ss = fs = ts = ty = attribute

    def set(self, kind: str, name: str, value: Any) -> Node:
        self.attributes[name] = (kind, value)
        return self

    def i_(self, name: str, value: Any) -> Node:
        return self.set("i", name, value)

    def f_(self, name: str, value: Any) -> Node:
        return self.set("f", name, value)

    def s_(self, name: str, value: Any) -> Node:
        return self.set("s", name, value)

    def t_(self, name: str, value: Any) -> Node:
        return self.set("t", name, value)

    def is_(self, name: str, value: Any) -> Node:
        return self.set("is", name, value)

    # ------------------------------------------------------------------ facts

    def sourceRange(self) -> str:
        return "" if self.range is None else self.range.highlight()

    def scopeName(self) -> str:
        return self._scope

    def schema(self) -> str:
        return "(no schema)" if self.call is None or not hasattr(self.call, "arguments") else str(self.call)

    def getModuleHierarchy(self) -> str:
        return self._scope

    def isNondeterministic(self) -> bool:
        names = [argument.name for argument in getattr(self.call, "arguments", ())]
        if "generator" in names or self._kind.startswith("aten::rand"):
            return True
        return bool("dropout" in self._kind and self._inputs[2].toIValue() is not False)

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        for block in self._blocks:
            node = block.findNode(kind, recurse)
            if node is not None:
                return node
        return None

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        return [node for block in self._blocks for node in block.findAllNodes(kind, recurse)]

    def matches(self, schema: str) -> bool:
        return self.call is not None and str(self.call).split("(")[0] == schema.split("(")[0]

    def namedInput(self, name: str) -> Value:
        for value, argument in zip(self._inputs, getattr(self.call, "arguments", ())):
            if argument.name == name:
                return value
        raise RuntimeError(f"[jit] expected an input named {name!r}, got {self._kind}")

    def __str__(self) -> str:
        return "".join(_node_lines(self, 0))

    __repr__ = __str__


class Block:
    """Nodes in order, with the values that come in and go out."""

    def __init__(self, graph: Graph, owner: Node | None) -> None:
        self.graph, self.owner = graph, owner
        self._nodes: list[Node] = []
        self._param = Node(graph, "prim::Param")
        self._return = Node(graph, "prim::Return")
        self._param.owner = self._return.owner = None

    def nodes(self) -> Iterator[Node]:
        return iter(list(self._nodes))

    def inputs(self) -> Iterator[Value]:
        return self._param.outputs()

    def outputs(self) -> Iterator[Value]:
        return self._return.inputs()

    def paramNode(self) -> Node:
        return self._param

    def returnNode(self) -> Node:
        return self._return

    def owningNode(self) -> Node | None:
        return self.owner

    def addInputToBlock(self, name: str | None = None) -> Value:
        return self._param.addOutput(None, name)

    def registerOutput(self, value: Value) -> int:
        self._return.addInput(value)
        return len(self._return._inputs) - 1

    def walk(self) -> Iterator[Node]:
        """All nodes, those of inner blocks after their owner."""
        for node in list(self._nodes):
            yield node
            for block in node._blocks:
                yield from block.walk()

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        return next((n for n in (self.walk() if recurse else self.nodes()) if n._kind == kind), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        return [n for n in (self.walk() if recurse else self.nodes()) if n._kind == kind]


class Graph(Block):
    """A function's graph."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._number = 0
        self._numbers: dict[int, int] = {}
        self.scope = ""  # of nodes that are created: calls of submodules that a trace stands in
        super().__init__(self, None)
        self.graph = self
        self.insert_block: Block = self
        self.insert_before: Node | None = None
        self.current_range: SourceRange | None = None

    # ------------------------------------------------------------------ names

    def fresh_number(self) -> str:
        while True:
            name = str(self._number)
            self._number += 1
            if name not in self._names:
                self._names[name] = 1
                return name

    def number_of(self, value: Value) -> int:
        return self._numbers.setdefault(id(value), len(self._numbers))

    def fresh_name(self, name: str) -> str:
        """The name with a number behind it that makes it unique."""
        if name.isdigit():
            return self.fresh_number()
        base, dot, number = name.rpartition(".")
        if not (dot and number.isdigit() and base):
            base, number = name, "0"
        if name not in self._names and not dot:
            self._names[name] = 1
            return name
        count = max(self._names.get(base, 1), int(number) if dot else 1)
        while f"{base}.{count}" in self._names:
            count += 1
        self._names[base] = count + 1
        self._names[f"{base}.{count}"] = 1
        return f"{base}.{count}"

    # ------------------------------------------------------------------ building

    def create(self, kind: str, inputs: Any = (), outputs: Any = 1) -> Node:
        node = Node(self, kind)
        node.range = self.current_range
        for value in [inputs] if isinstance(inputs, Value) else inputs if not isinstance(inputs, int) else ():
            node.addInput(value)
        count = inputs if isinstance(inputs, int) else outputs
        for _ in range(count):
            node.addOutput()
        return node

    def insertNode(self, node: Node) -> Node:
        block = self.insert_block
        node.owner = block
        if self.insert_before is not None:
            block._nodes.insert(block._nodes.index(self.insert_before), node)
        else:
            block._nodes.append(node)
        return node

    appendNode = insertNode

    def prependNode(self, node: Node) -> Node:
        node.owner = self
        self._nodes.insert(0, node)
        return node

    def insert(self, kind: str, inputs: Any = (), types: Any = ()) -> Node:
        """Append a node with outputs of these types."""
        node = self.create(kind, inputs, 0)
        for one in types:
            node.addOutput(one)
        return self.insertNode(node)

    def insertConstant(self, value: Any, kind: T.JitType | None = None) -> Value:
        from flambeau.jit._values import infer_type

        node = Node(self, "prim::Constant")
        node.range = self.current_range
        kind = infer_type(value) if kind is None else kind
        if value is not None:
            codes = {bool: "i", int: "i", float: "f", str: "s", complex: "c"}
            code = codes.get(type(value), "t" if isinstance(value, _C.Tensor) else "ival")
            node.attributes["value"] = (code, value)
        node.addOutput(kind)
        self.insertNode(node)
        return node._outputs[0]

    def addInput(self, name: str | None = None) -> Value:
        return self._param.addOutput(None, name)

    def param_node(self) -> Node:
        return self._param

    def return_node(self) -> Node:
        return self._return

    def block(self) -> Block:
        return self

    def eraseInput(self, index: int) -> None:
        self._param.eraseOutput(index)

    def setInsertPoint(self, node: Any) -> None:
        if isinstance(node, Block):
            self.insert_block, self.insert_before = node, None
        else:
            self.insert_block, self.insert_before = node.owner, node

    def copy(self) -> Graph:
        from flambeau.jit._passes import copy_graph

        return copy_graph(self)

    def renumber(self) -> None:
        """Give values without a name of their own numbers in the order in which they come."""
        self._names = {n: c for n, c in self._names.items() if not n.isdigit()}
        self._number = 0
        values = [o for node in self.walk() for o in node._outputs]
        for value in [*self._param._outputs, *values]:
            if not value.hasDebugName():
                value._name = None
                value.debugName()

    def alias_db(self) -> Any:
        from flambeau.jit._aliases import AliasDb

        return AliasDb(self)

    def lint(self) -> None:
        """Check that every value is defined before it is used."""
        _lint(self, set())

    def __str__(self) -> str:
        names = f",\n{' ' * 6}".join(f"%{v.debugName()} : {v.type()}" for v in self._param._outputs)
        lines = [f"graph({names}):\n"]
        for node in self._nodes:
            lines += _node_lines(node, 1)
        results = ", ".join(f"%{v.debugName()}" for v in self._return._inputs)
        return "".join([*lines, f"  return ({results})\n"])

    def str(self, print_source_ranges: bool = True) -> str:
        return str(self)

    __repr__ = __str__


def _lint(block: Block, known: set[int]) -> None:
    known = known | {id(v) for v in block._param._outputs}
    for node in block._nodes:
        for value in node._inputs:
            if id(value) not in known:
                raise RuntimeError(
                    f"[jit] expected values defined before their use, got %{value.debugName()} in {node}"
                )
        for inner in node._blocks:
            _lint(inner, known)
        known |= {id(v) for v in node._outputs}
    for value in block._return._inputs:
        if id(value) not in known:
            raise RuntimeError(f"[jit] expected results that are defined, got %{value.debugName()}")


# ---------------------------------------------------------------------------------------------- printing


def quoted(text: str) -> str:
    """A string literal as graphs and archives have them."""
    parts = []
    escapes = {
        "\n": "\\n",
        "\t": "\\t",
        "\\": "\\\\",
        '"': '\\"',
        "\r": "\\r",
        "\f": "\\f",
        "\v": "\\v",
        "\b": "\\b",
        "\a": "\\a",
    }
    for char in text:
        if char in escapes:
            parts.append(escapes[char])
        elif " " <= char <= "~":
            parts.append(char)
        else:
            parts.append("".join(f"\\{byte:03o}" for byte in char.encode()))
    return f'"{"".join(parts)}"'


def number_text(value: float) -> str:
    """A float with a point or an exponent."""
    if value != value:
        return "nan"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    text = f"{value:.17g}" if float(f"{value:.6g}") != value else f"{value:.6g}"
    if float(repr(value)) == value and len(repr(value)) <= len(text):
        text = repr(value)
    if text.endswith(".0"):
        text = text[:-1]
    return text if any(c in text for c in ".e") else f"{text}."


def _attribute_text(kind: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if kind == "s":
        return quoted(value)
    if kind == "ty":
        return str(value)
    if kind == "f":
        return number_text(value)
    if isinstance(value, _C.Tensor):
        if value.numel() == 1 and value.dim() == 0:
            return f"{{{value.item()}}}"
        return "<Tensor>"
    if kind == "g":
        return "<Graph>"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (list, tuple)):
        inside = ", ".join(_attribute_text("", v) for v in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, float):
        return number_text(value)
    return str(value)


def _node_lines(node: Node, depth: int) -> list[str]:
    pad = "  " * depth
    outputs = ", ".join(f"%{v.debugName()} : {v.type()}" for v in node._outputs)
    attributes = ""
    if node.attributes:
        inside = ", ".join(f"{name}={_attribute_text(k, v)}" for name, (k, v) in node.attributes.items())
        attributes = f"[{inside}]"
    inputs = ", ".join(f"%{v.debugName()}" for v in node._inputs)
    place = f" # {node.range.place()}" if node.range is not None else ""
    head = f"{outputs} = " if outputs else ""
    scope = f", scope: {node._scope}" if node._scope else ""
    lines = [f"{pad}{head}{node._kind}{attributes}({inputs}){scope}{place}\n"]
    for number, block in enumerate(node._blocks):
        names = ", ".join(f"%{v.debugName()} : {v.type()}" for v in block._param._outputs)
        lines.append(f"{pad}  block{number}({names}):\n")
        for inner in block._nodes:
            lines += _node_lines(inner, depth + 2)
        results = ", ".join(f"%{v.debugName()}" for v in block._return._inputs)
        lines.append(f"{pad}    -> ({results})\n")
    return lines
