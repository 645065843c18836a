"""Graphs as source in the language of archives: `.code`, and what `code/` holds.

Statements are printed in order. A value without a name that is used once, by the statement that follows, is written inside it; others get names. Constants that cannot be written as
literals go into a table, `CONSTANTS.c0`, as PyTorch has it.
"""

from __future__ import annotations

import keyword
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value, number_text, quoted
from flambeau.jit._schemas import NO_DEFAULT, Signature

_RESERVED = {
    "self", "torch", "ops", "CONSTANTS", "fork", "range", "annotate", "getattr", "float", "int", "bool", "str", "uninitialized", "unchecked_cast", "list",
    "isinstance", "inf", "nan", "infj", "nanj", "print", "device", "namedtuple", "Tensor", "List", "Dict", "Tuple", "Optional", "Union", "Future", "awaitable", "sorted", "__torch__",
}  # fmt: skip
_CASTS = {
    "aten::Int": "int",
    "aten::Float": "float",
    "aten::Bool": "bool",
    "aten::str": "str",
    "aten::list": "list",
    "aten::sorted": "sorted",
}
_LINE = 40
_NAMED_OPERANDS = (
    "prim::fork",
    "prim::awaitable",
    "prim::isinstance",
    "prim::unchecked_cast",
    "prim::Enter",
    "prim::Exit",
)


class CodePrinter:
    """The source of one function or method, and what it refers to."""

    def __init__(self, constants: list[Any], dependencies: Any = None) -> None:
        self.constants = constants
        self.dependencies = dependencies if dependencies is not None else (lambda kind: None)
        self.lines: list[str] = []
        self.expressions: dict[int, str] = {}
        self.names: set[str] = set()
        self.counter = 0
        self.inlined: dict[int, Node] = {}
        self.operators: set[str] = set()

    # ------------------------------------------------------------------ names

    def fresh(self, hint: str | None = None) -> str:
        if hint is not None:
            base = hint.partition(".")[0] if not hint.startswith(".") else hint
            base = "".join(c if c.isalnum() or c == "_" else "_" for c in base)
            if base and not base[0].isdigit() and not keyword.iskeyword(base) and base not in _RESERVED:
                name, count = base, 0
                while name in self.names:
                    name, count = f"{base}{count}", count + 1
                self.names.add(name)
                return name
        while True:
            name = f"_{self.counter}"
            self.counter += 1
            if name not in self.names:
                self.names.add(name)
                return name

    def name_of(self, value: Value) -> str:
        return self.fresh(value.debugName() if value.hasDebugName() else None)

    def kind(self, kind: T.JitType) -> str:
        self.refer(kind)
        return kind.annotation_str

    def refer(self, kind: T.JitType) -> None:
        self.dependencies(kind)
        for part in kind.contained():
            self.refer(part)

    # ------------------------------------------------------------------ functions

    def function(self, name: str, graph: Graph, schema: Signature, indent: str, with_self: bool = True) -> str:
        heads = []
        for value, argument in zip(graph._param._outputs, schema.arguments):
            own = (
                argument.name
                if argument.name not in self.names and argument.name.isidentifier()
                else self.fresh(argument.name)
            )
            self.names.add(own)
            self.expressions[id(value)] = own
            if argument.name == "self" and not with_self:
                heads.append("self")
                continue
            kind = T.TENSOR if isinstance(argument.type, T.TensorType) else argument.type
            text = f"{own}: {self.kind(kind)}"
            if argument.default is not NO_DEFAULT:
                text += f"={self.literal(argument.default, argument.type)}"
            heads.append(text)
        result = schema.result_type()
        head = f"{indent}def {name}({(',' + chr(10) + indent + '    ').join(heads)}) -> {self.kind(result)}:"
        self.lines.append(head)
        self.block(graph, indent + "  ")
        values = graph._return._inputs
        self.split(values, indent + "  ")
        self.lines.append(f"{indent}  return {self.use(values[0])}")
        return "\n".join(self.lines) + "\n"

    # ------------------------------------------------------------------ blocks

    def block(self, block: Block, indent: str) -> None:
        _with_statements(self, block._nodes, indent, _inlined_nodes(block))

    def assign(self, node: Node, text: str, indent: str, inline: set[int]) -> None:
        if not node._outputs:
            self.lines.append(f"{indent}{text}")
            return
        if id(node) in inline:
            self.inlined[id(node._outputs[0])] = node
            self.expressions[id(node._outputs[0])] = text
            return
        names = []
        for output in node._outputs:
            name = self.name_of(output)
            self.expressions[id(output)] = name
            names.append(name)
        self.lines.append(f"{indent}{', '.join(names)} = {text}")

    def split(self, values: list[Value], indent: str) -> None:
        """Give names to expressions that are long, and to those that are computed before them."""
        long = [i for i, v in enumerate(values) if id(v) in self.inlined and len(self.expressions[id(v)]) > _LINE]
        for value in values[: long[-1] + 1 if long else 0]:
            node = self.inlined.pop(id(value), None)
            if node is not None:
                self.assign(node, self.expressions[id(value)], indent, set())

    def use(self, value: Value) -> str:
        expression = self.expressions.get(id(value))
        if expression is None:
            raise RuntimeError(f"[jit] expected a value that was printed, got %{value.debugName()}")
        return expression

    def uses(self, values: list[Value]) -> list[str]:
        return [self.use(v) for v in values]

    # ------------------------------------------------------------------ nodes

    def node(self, node: Node, indent: str, inline: set[int]) -> None:
        self.split(node._inputs, indent)
        handler = getattr(self, "prim_" + node._kind[6:], None) if node._kind.startswith("prim::") else None
        if handler is not None:
            handler(node, indent, inline)
            return
        self.assign(node, self.operator(node), indent, inline)

    def operator(self, node: Node) -> str:
        kind = node._kind
        self.operators.add(kind)
        inputs = self.uses(node._inputs)
        if kind in _CASTS and len(inputs) == 1:
            return f"{_CASTS[kind]}({inputs[0]})"
        if kind == "aten::__getitem__" and isinstance(node._inputs[0].type(), (T.ListType, T.DictType)):
            return f"{self.grouped(inputs[0])}[{inputs[1]}]"
        space, _, name = kind.partition("::")
        head = f"torch.{name}" if space == "aten" else f"ops.{space}.{name}"
        return f"{head}({', '.join(self.arguments(node, inputs))})"

    def grouped(self, text: str) -> str:
        return text if text.isidentifier() else f"({text})"

    def arguments(self, node: Node, inputs: list[str]) -> list[str]:
        """Arguments without the trailing ones that are defaults; those after the star by name."""
        signature = node.call if isinstance(node.call, Signature) else None
        if signature is None or signature.variadic:
            return inputs
        from flambeau.jit._lower import Lowering

        is_default = Lowering._is_default
        count = len(inputs)
        while count and is_default(None, node._inputs[count - 1], signature.arguments[count - 1]):  # type: ignore[arg-type]
            count -= 1
        parts = []
        for text, argument in zip(inputs[:count], signature.arguments):
            parts.append(f"{argument.name}={text}" if argument.kwarg_only else text)
        return parts

    def prim_Constant(self, node: Node, indent: str, inline: set[int]) -> None:
        value = node._outputs[0]
        kind = value.type()
        if isinstance(kind, T.FunctionType):
            self.dependencies(kind)
            self.expressions[id(value)] = kind.function.name
            return
        constant = node.attributes.get("value", ("", None))[1]
        text = self.literal(constant, kind)
        self.expressions[id(value)] = f"({text})" if text.startswith("-") and False else text

    def literal(self, value: Any, kind: T.JitType) -> str:
        import enum

        import flambeau
        from flambeau.jit._values import enumerated

        value = enumerated(value)
        if value is None or isinstance(value, bool):
            return str(value)
        if isinstance(value, int):
            return str(value)
        if isinstance(value, float):
            text = number_text(value)
            return {"inf": "inf", "-inf": "-inf", "nan": "nan"}.get(text, text)
        if isinstance(value, complex):
            return f"{number_text(value.real)}{'+' if value.imag >= 0 else '-'}{number_text(abs(value.imag))}j"
        if isinstance(value, str):
            return quoted(value)
        if isinstance(value, flambeau.device):
            return f"torch.device({quoted(str(value))})"
        if isinstance(value, enum.Enum):
            assert isinstance(kind, T.EnumType)
            self.refer(kind)
            return f"{kind.name}.{value.name}"
        if isinstance(value, tuple):
            kinds = kind.contained() or [T.ANY] * len(value)
            inside = ", ".join(self.literal(v, k) for v, k in zip(value, kinds))
            return f"({inside}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            inner = kind.element if isinstance(kind, T.OptionalType) else kind
            element = inner.element if isinstance(inner, T.ListType) else T.ANY
            inside = ", ".join(self.literal(v, element) for v in value)
            return f"annotate({self.kind(inner)}, [])" if not value else f"[{inside}]"
        if isinstance(value, dict):
            inner = kind.element if isinstance(kind, T.OptionalType) else kind
            pairs = ", ".join(f"{self.literal(k, T.ANY)}: {self.literal(v, T.ANY)}" for k, v in value.items())
            return f"annotate({self.kind(inner)}, {{{pairs}}})"
        return self.table(value)

    def table(self, value: Any) -> str:
        for index, other in enumerate(self.constants):
            if other is value:
                return f"CONSTANTS.c{index}"
        self.constants.append(value)
        return f"CONSTANTS.c{len(self.constants) - 1}"

    def prim_ListConstruct(self, node: Node, indent: str, inline: set[int]) -> None:
        kind = node._outputs[0].type()
        assert isinstance(kind, T.ListType)
        inside = f"[{', '.join(self.uses(node._inputs))}]"
        exact = all(v.type() == kind.element for v in node._inputs)
        if not node._inputs and kind.element == T.TENSOR:
            text = f"annotate({self.kind(kind)}, [])"
        elif not node._inputs or not exact:
            text = f"annotate({self.kind(kind)}, {inside})"
        else:
            text = inside
        self.assign(node, text, indent, inline)

    def prim_DictConstruct(self, node: Node, indent: str, inline: set[int]) -> None:
        kind = node._outputs[0].type()
        items = self.uses(node._inputs)
        pairs = ", ".join(f"{k}: {v}" for k, v in zip(items[::2], items[1::2]))
        assert isinstance(kind, T.DictType)
        exact = node._inputs and all(v.type() == kind.value for v in node._inputs[1::2])
        text = f"{{{pairs}}}" if exact else f"annotate({self.kind(kind)}, {{{pairs}}})"
        self.assign(node, text, indent, inline)

    def prim_TupleConstruct(self, node: Node, indent: str, inline: set[int]) -> None:
        kind = node._outputs[0].type()
        items = self.uses(node._inputs)
        assert isinstance(kind, T.TupleType)
        if kind.name is not None:
            self.refer(kind)
            self.assign(node, f"{kind.name}({', '.join(items)})", indent, inline)
            return
        self.assign(node, f"({', '.join(items)}{',' if len(items) == 1 else ''})", indent, inline)

    def prim_TupleUnpack(self, node: Node, indent: str, inline: set[int]) -> None:
        self._unpack(node, indent)

    def prim_ListUnpack(self, node: Node, indent: str, inline: set[int]) -> None:
        self._unpack(node, indent)

    def _unpack(self, node: Node, indent: str) -> None:
        names = []
        for output in node._outputs:
            name = self.name_of(output)
            self.expressions[id(output)] = name
            names.append(name)
        if names:
            self.lines.append(f"{indent}{', '.join(names)}, = {self.use(node._inputs[0])}")

    def prim_TupleIndex(self, node: Node, indent: str, inline: set[int]) -> None:
        self.assign(node, f"({self.use(node._inputs[0])})[{self.use(node._inputs[1])}]", indent, inline)

    def prim_unchecked_cast(self, node: Node, indent: str, inline: set[int]) -> None:
        kind = self.kind(node._outputs[0].type())
        self.assign(node, f"unchecked_cast({kind}, {self.use(node._inputs[0])})", indent, inline)

    def prim_annotate(self, node: Node, indent: str, inline: set[int]) -> None:
        self.assign(
            node, f"annotate({self.kind(node._outputs[0].type())}, {self.use(node._inputs[0])})", indent, inline
        )

    def prim_Uninitialized(self, node: Node, indent: str, inline: set[int]) -> None:
        self.assign(node, f"uninitialized({self.kind(node._outputs[0].type())})", indent, set())

    def prim_RaiseException(self, node: Node, indent: str, inline: set[int]) -> None:
        inputs = self.uses(node._inputs)
        if inputs[-1] == "None":
            inputs.pop()
        self.lines.append(f"{indent}ops.prim.RaiseException({', '.join(inputs)})")

    def prim_Print(self, node: Node, indent: str, inline: set[int]) -> None:
        self.lines.append(f"{indent}print({', '.join(self.uses(node._inputs))})")

    def prim_GetAttr(self, node: Node, indent: str, inline: set[int]) -> None:
        owner, name = self.use(node._inputs[0]), node.attribute("name")
        if name.isidentifier() and not keyword.iskeyword(name):
            text = f"{owner if owner.isidentifier() else f'({owner})'}.{name}"
        else:
            text = f"getattr({owner}, {quoted(name)})"
        self.assign(node, text, indent, inline)

    def prim_SetAttr(self, node: Node, indent: str, inline: set[int]) -> None:
        owner, value = self.uses(node._inputs)
        owner = owner if owner.isidentifier() else f"({owner})"
        self.lines.append(f"{indent}{owner}.{node.attribute('name')} = {value}")

    def prim_CreateObject(self, node: Node, indent: str, inline: set[int]) -> None:
        kind = self.kind(node._outputs[0].type())
        self.assign(node, f"{kind}.__new__({kind})", indent, set())

    def prim_isinstance(self, node: Node, indent: str, inline: set[int]) -> None:
        kinds = [self.kind(k) for k in node.attribute("types")]
        text = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
        self.assign(node, f"isinstance({self.use(node._inputs[0])}, {text})", indent, inline)

    def prim_tolist(self, node: Node, indent: str, inline: set[int]) -> None:
        kind = self.kind(node._outputs[0].type())
        self.assign(node, f"annotate({kind}, {self.use(node._inputs[0])}.tolist())", indent, set())

    def prim_EnumValue(self, node: Node, indent: str, inline: set[int]) -> None:
        self.assign(node, f"({self.use(node._inputs[0])}).value", indent, inline)

    def prim_EnumName(self, node: Node, indent: str, inline: set[int]) -> None:
        self.assign(node, f"({self.use(node._inputs[0])}).name", indent, inline)

    def prim_CallMethod(self, node: Node, indent: str, inline: set[int]) -> None:
        owner, *rest = self.uses(node._inputs)
        self.refer(node._inputs[0].type())
        arguments = "".join(f"{a}, " for a in rest)
        self.assign(node, f"({owner}).{node.attribute('name')}({arguments})", indent, inline)

    def prim_CallFunction(self, node: Node, indent: str, inline: set[int]) -> None:
        self.dependencies(T.FunctionType(node.call))
        arguments = "".join(f"{a}, " for a in self.uses(node._inputs[1:]))
        self.assign(node, f"{node.call.name}({arguments})", indent, inline)

    def prim_PythonOp(self, node: Node, indent: str, inline: set[int]) -> None:
        name = node.attribute("name")
        self.assign(node, f"^{name}()({', '.join(self.uses(node._inputs))})", indent, inline)

    def prim_Enter(self, node: Node, indent: str, inline: set[int]) -> None:
        raise RuntimeError("[jit] expected a with statement as a whole, got its beginning")

    # ------------------------------------------------------------------ control flow

    def prim_If(self, node: Node, indent: str, inline: set[int]) -> None:
        names = []
        self.lines.append(f"{indent}if {self.use(node._inputs[0])}:")
        names = [self.name_of(o) for o in node._outputs]
        for index, block in enumerate(node._blocks):
            if index:
                self.lines.append(f"{indent}else:")
            before = len(self.lines)
            self.block(block, indent + "  ")
            values = self.uses(block._return._inputs)
            if names:
                self.lines.append(f"{indent}  {', '.join(names)} = {', '.join(values)}")
            if len(self.lines) == before:
                self.lines.append(f"{indent}  pass")
        for name, output in zip(names, node._outputs):
            self.expressions[id(output)] = name

    def prim_Loop(self, node: Node, indent: str, inline: set[int]) -> None:
        trips, first, *initial = node._inputs
        block = node._blocks[0]
        counter, *carried = block._param._outputs
        condition, *results = block._return._inputs
        names = []
        starts = self.uses(initial)
        for value, start in zip(carried, starts):
            name = self.fresh(value.debugName() if value.hasDebugName() else None)
            names.append(name)
            self.expressions[id(value)] = name
            self.lines.append(f"{indent}{name} = {start}")
        always = condition.node()._kind == "prim::Constant" and condition.toIValue() is True
        begins = first.node()._kind == "prim::Constant" and first.toIValue() is True
        unbounded = trips.node()._kind == "prim::Constant" and trips.toIValue() == 2**63 - 1
        inner = indent + "  "
        if always and begins and not unbounded:
            index = self.name_of(counter)
            self.expressions[id(counter)] = index
            self.lines.append(f"{indent}for {index} in range({self.use(trips)}):")
            self._loop_body(block, inner, names, results, [])
        else:
            self._while(node, block, indent, names, results, condition, unbounded)
        for name, output in zip(names, node._outputs):
            self.expressions[id(output)] = name

    def _while(
        self,
        node: Node,
        block: Block,
        indent: str,
        names: list[str],
        results: list[Value],
        condition: Value,
        unbounded: bool,
    ) -> None:
        trips, first = node._inputs[:2]
        counter = block._param._outputs[0]
        going = self.fresh()
        counted = bool(counter._uses) or not unbounded
        start = self.use(first)
        index = ""
        if counted:
            index = self.fresh()
            self.expressions[id(counter)] = index
            self.lines.append(f"{indent}{index} = 0")
            bound = f"torch.gt({self.use(trips)}, 0)"
            start = bound if start == "True" else f"torch.__and__({bound}, {start})"
        self.lines.append(f"{indent}{going} = {start}")
        self.lines.append(f"{indent}while {going}:")
        inner = indent + "  "
        self.block(block, inner)
        targets, values = [going], [self.use(condition)]
        if counted:
            bound = f"torch.lt({index}, {self.use(trips)})"
            step = self.fresh()
            self.lines.append(f"{inner}{step} = torch.add({index}, 1)")
            bound = f"torch.lt({step}, {self.use(trips)})"
            values = [bound if values[0] == "True" else f"torch.__and__({bound}, {values[0]})"]
            targets.append(index)
            values.append(step)
        targets += names
        values += self.uses(results)
        self.lines.append(f"{inner}{', '.join(targets)} = {', '.join(values)}")

    def _loop_body(self, block: Block, indent: str, names: list[str], results: list[Value], extra: list[Any]) -> None:
        before = len(self.lines)
        self.block(block, indent)
        pairs = [(n, v) for n, v in zip(names, self.uses(results)) if n != v]
        if pairs:
            self.lines.append(f"{indent}{', '.join(n for n, _ in pairs)} = {', '.join(v for _, v in pairs)}")
        if len(self.lines) == before:
            self.lines.append(f"{indent}pass")

    def prim_fork(self, node: Node, indent: str, inline: set[int]) -> None:
        self._closure("fork", "__forked_function", node, indent)

    def prim_awaitable(self, node: Node, indent: str, inline: set[int]) -> None:
        self._closure("awaitable", "__awaitable_function", node, indent)

    def _closure(self, what: str, prefix: str, node: Node, indent: str) -> None:
        name = self.fresh(prefix)
        self.lines.append(f"{indent}def {name}():")
        self.block(node._blocks[0], indent + "  ")
        self.split(node._blocks[0]._return._inputs, indent + "  ")
        self.lines.append(f"{indent}  return {self.use(node._blocks[0]._return._inputs[0])}")
        self.assign(node, f"{what}({name})", indent, set())


# ---------------------------------------------------------------------------------------------- inlining


def _inlined_nodes(block: Block) -> set[int]:
    """Nodes whose value is written where it is used: the order in which expressions are evaluated is that of the nodes.

    Statements are visited from the last to the first. `last` is the node before which everything still has to be placed; a value may be written inside its user
    when it is computed exactly there.
    """
    position = {id(n): i for i, n in enumerate(block._nodes)}
    inlined: set[int] = set()

    def before(index: int) -> int:
        index -= 1
        while index >= 0 and block._nodes[index]._kind in ("prim::Constant", "prim::Uninitialized"):
            index -= 1
        return index

    def visit(node: Node, index: int) -> int:
        """The place before `node` at `index` once its inputs are written inside it."""
        last = before(index)
        for value in reversed(node._inputs):
            maker = value.node()
            if last >= 0 and position.get(id(maker)) == last and _can_inline(value):
                inlined.add(id(maker))
                last = visit(maker, last)
        return last

    visit(block._return, len(block._nodes))
    for index in range(len(block._nodes) - 1, -1, -1):
        if id(block._nodes[index]) not in inlined:
            visit(block._nodes[index], index)
    return inlined


def _can_inline(value: Value) -> bool:
    """Whether a value may stand inside its only user. One with a name keeps it, unless it only leaves its block."""
    node = value.node()
    if len(node._outputs) != 1 or node._blocks or len(value._uses) != 1 or node._kind == "prim::CreateObject":
        return False
    use = value._uses[0]
    if value.hasDebugName() and use.user._kind != "prim::Return":
        return False
    return not (use.user._kind == "prim::Loop" and use.offset > 1) and use.user._kind not in _NAMED_OPERANDS


# ---------------------------------------------------------------------------------------------- with


def _with_statements(printer: CodePrinter, nodes: list[Node], indent: str, inline: set[int]) -> None:
    """Nodes in order, those between `prim::Enter` and `prim::Exit` inside a with statement."""
    stack: list[Node] = []
    for node in nodes:
        if node._kind == "prim::Enter":
            used = bool(node._outputs[0]._uses)
            name = printer.name_of(node._outputs[0]) if used else ""
            printer.expressions[id(node._outputs[0])] = name
            printer.lines.append(f"{indent}with {printer.use(node._inputs[0])}{f' as {name}' if name else ''}:")
            indent += "  "
            stack.append(node)
            printer.names.add("")
            continue
        if node._kind == "prim::Exit":
            if printer.lines[-1].endswith(":") and printer.lines[-1].lstrip().startswith("with "):
                printer.lines.append(f"{indent}pass")
            indent = indent[:-2]
            stack.pop()
            continue
        printer.node(node, indent, inline)


class ConstantTable:
    """The constants of a function's code, by the names it uses."""

    def __init__(self, values: list[Any]) -> None:
        self.const_mapping = {f"c{i}": v for i, v in enumerate(values)}

    def __getattr__(self, name: str) -> Any:
        table = self.__dict__.get("const_mapping", {})
        if name not in table:
            raise AttributeError(name)
        return table[name]


def function_code(function: Any) -> tuple[str, ConstantTable]:
    function.ensure()
    constants: list[Any] = []
    printer = CodePrinter(constants)
    name = function.name.rpartition(".")[2]
    return printer.function(name, function.graph, function.schema, "", with_self=False), ConstantTable(constants)
