"""Graphs become Python functions over run-time values.

Each node is one statement, or an expression inside the statement that uses it; blocks become `if` and `while`. The text is compiled once for a function.
Only operators of the signature table, functions of the same program and constants are reachable from it, so that a file cannot bring in code. When a
statement fails, the line says which node it was, and the error shows the source of the program.
"""

from __future__ import annotations

import itertools
import keyword
import linecache
from typing import Any

from flambeau.jit import _arithmetic, _builtins, _tasks, _values
from flambeau.jit import _types as T
from flambeau.jit._ir import Block, Graph, Node, Value
from flambeau.jit._library import contexts
from flambeau.jit._schemas import NO_DEFAULT, Signature

_numbers = itertools.count()


def _is_autocast(node: Node) -> bool:
    """Whether a node enters or leaves mixed precision, which is a matter of the machine rather than of the methods."""
    name = str(getattr(node._inputs[0].type(), "name", ""))
    return name.startswith("__torch__.torch.") and name.endswith(".autocast_mode.autocast")


def _leaves_context(node: Node, enter: Node) -> bool:
    return node._kind == "prim::Exit" and node._inputs[0] is enter._inputs[0]


class JitError(RuntimeError):
    """Raised by a program: `jit.Error`."""


JitError.__name__ = JitError.__qualname__ = "Error"


SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "floordiv": "//",
}
_GROWING = frozenset({"add", "sub", "mul"})  # what may leave 64 bits
_SCALARS = (T.INT, T.FLOAT, T.BOOL)


class Lowering:
    """The text of one function."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name
        self.names: dict[int, str] = {}
        self.lines: list[str] = []
        self.places: list[Node | None] = []
        self.scope: dict[str, Any] = {"_RaiseException": _raise, "_Uninitialized": None, "_values": _values}
        self.taken: set[str] = set()

    # ------------------------------------------------------------------ names

    def bind(self, thing: Any, hint: str) -> str:
        """A name in the function's globals for an object."""
        base = "_" + "".join(c if c.isalnum() else "_" for c in hint)
        for count in itertools.count():
            name = f"{base}_{count}" if count else base
            if name not in self.scope:
                self.scope[name] = thing
                return name
            if self.scope[name] is thing:
                return name
        raise AssertionError

    def of(self, value: Value) -> str:
        return self.names[id(value)]

    def new(self, value: Value) -> str:
        base = "".join(c if c.isalnum() else "_" for c in value.debugName())
        name = f"v{base}" if base[:1].isdigit() or keyword.iskeyword(base) or base.startswith("_") else base
        if name in self.taken or name in self.scope:
            name = next(
                f"{name}_{n}"
                for n in itertools.count()
                if f"{name}_{n}" not in self.taken and f"{name}_{n}" not in self.scope
            )
        self.taken.add(name)
        self.names[id(value)] = name
        return name

    def line(self, depth: int, text: str, node: Node | None) -> None:
        self.lines.append("    " * depth + text)
        self.places.append(node)

    # ------------------------------------------------------------------ the function

    def text(self) -> str:
        names = [self.new(v) for v in self.graph._param._outputs]
        self.line(0, f"def _function({', '.join(names)}):", None)
        self.block(self.graph, 1)
        self.line(1, f"return {self._results(self.graph)}", None)
        return "\n".join(self.lines) + "\n"

    def _results(self, block: Block) -> str:
        values = [self.of(v) for v in block._return._inputs]
        return values[0] if len(values) == 1 else f"({', '.join(values)})"

    def block(self, block: Block, depth: int) -> None:
        self.nodes(block._nodes, depth)

    def nodes(self, nodes: list[Node], depth: int) -> None:
        """Nodes in order; what stands between entering and leaving a context leaves it when it fails as well."""
        index = 0
        while index < len(nodes):
            node = nodes[index]
            self.node(node, depth)
            index += 1
            if node._kind != "prim::Enter":
                continue
            last = next((i for i in range(index, len(nodes)) if _leaves_context(nodes[i], node)), None)
            if last is None or last == index:
                continue
            self.line(depth, "try:", None)
            self.nodes(nodes[index:last], depth + 1)
            self.line(depth + 1, "pass", None)
            self.line(depth, "except BaseException:", None)
            self.node(nodes[last], depth + 1)
            self.line(depth + 1, "raise", None)
            index = last

    def node(self, node: Node, depth: int) -> None:
        kind = node._kind
        space, _, name = kind.partition("::")
        handler = getattr(self, f"prim_{name}", None) if space == "prim" else None
        if handler is not None:
            handler(node, depth)
            return
        self.operator(node, depth)

    def assign(self, node: Node, depth: int, expression: str) -> None:
        outputs = node._outputs
        if not outputs:
            self.line(depth, expression, node)
        elif len(outputs) == 1:
            self.line(depth, f"{self.new(outputs[0])} = {expression}", node)
        else:
            self.line(depth, f"{', '.join(self.new(o) for o in outputs)} = {expression}", node)

    # ------------------------------------------------------------------ operators

    def operator(self, node: Node, depth: int) -> None:
        inputs = [self.of(v) for v in node._inputs]
        name = node._kind.partition("::")[2]
        kinds = [v.type() for v in node._inputs]
        scalars = len(inputs) == 2 and all(k in _SCALARS and k != T.BOOL for k in kinds)
        integers = scalars and kinds[0] == kinds[1] == T.INT
        if scalars and name in SYMBOLS and node._kind.startswith("aten") and (integers or name != "floordiv"):
            self._scalar_operator(
                node, depth, f"{inputs[0]} {SYMBOLS[name]} {inputs[1]}", integers and name in _GROWING
            )
            return
        function = _builtins.plain_implementation(node) or _builtins.adapted_implementation(node)
        if function is not None:
            self.assign(node, depth, f"{self.bind(function, name)}({', '.join(inputs)})")
            return
        function = _builtins.form(node)
        if function is not None:
            self.assign(node, depth, f"{self.bind(function, name)}({', '.join(self._form_arguments(node))})")
            return
        self._tensor_operator(node, depth, name)

    def _scalar_operator(self, node: Node, depth: int, expression: str, wraps: bool) -> None:
        self.assign(node, depth, expression)
        if wraps:
            name = self.of(node._outputs[0])
            self.line(depth, f"if not {_arithmetic.LOWEST} <= {name} <= {_arithmetic.HIGHEST}:", node)
            self.line(depth + 1, f"{name} = {self.bind(_arithmetic.wrap, 'wrap')}({name})", node)

    def _form_arguments(self, node: Node) -> list[str]:
        formals = node.call.arguments if isinstance(node.call, Signature) else []
        padded = [*formals, *[None] * (len(node._inputs) - len(formals))]
        return [self._argument(value, formal) for value, formal in zip(node._inputs, padded)]

    def _tensor_operator(self, node: Node, depth: int, name: str) -> None:
        """A call of the dispatcher, without the arguments that are defaults."""
        signature = node.call if isinstance(node.call, Signature) else None
        callee = self.bind(_builtins.tensor_callable(node._kind), name)
        positional: list[str] = []
        pending: list[str] = []
        named: list[str] = []
        for index, value in enumerate(node._inputs):
            argument = (
                signature.arguments[index] if signature is not None and index < len(signature.arguments) else None
            )
            text = self._argument(value, argument)
            if argument is not None and self._is_default(value, argument):
                if not argument.kwarg_only:
                    pending.append(text)
                continue
            if argument is not None and argument.kwarg_only:
                named.append(f"{argument.name}={text}")
            else:
                positional += [*pending, text]
                pending = []
        call = f"{callee}({', '.join([*positional, *named])})"
        if signature is not None and len(signature.returns) == 1 and isinstance(signature.returns[0].type, T.ListType):
            call = f"list({call})"
        self.assign(node, depth, call)

    def _is_default(self, value: Value, argument: Any) -> bool:
        if argument.default is NO_DEFAULT:
            return False
        node = value.node()
        if node._kind == "prim::Constant":
            constant = value.toIValue()
            return type(constant) is type(argument.default) and constant == argument.default
        if node._kind == "prim::ListConstruct" and isinstance(argument.default, list):
            items = [v.toIValue() if v.node()._kind == "prim::Constant" else None for v in node._inputs]
            return items == argument.default
        return False

    def _argument(self, value: Value, argument: Any) -> str:
        """An argument as the dispatcher takes it: numbers of dtypes, layouts and memory formats become those objects."""
        kind = "" if argument is None else argument.enumerated
        if not kind and argument is not None and argument.name in ("dtype", "memory_format", "layout"):
            kind = argument.name if T.is_subtype(T.INT, argument.type) and argument.type != T.NUMBER else ""
        if not kind:
            return self.of(value)
        converter = {"dtype": _values.dtype_of, "layout": _values.layout_of, "memory_format": _values.memory_format_of}[
            kind
        ]
        if value.node()._kind == "prim::Constant":
            constant = converter(value.toIValue())
            return "None" if constant is None else self.bind(constant, kind)
        return f"{self.bind(converter, kind)}({self.of(value)})"

    # ------------------------------------------------------------------ prim

    def prim_Constant(self, node: Node, depth: int) -> None:
        output = node._outputs[0]
        if isinstance(output.type(), T.FunctionType):
            self.names[id(output)] = "None"
            return
        value = node.attributes.get("value", ("", None))[1]
        value = _values.enumerated(value)
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            text = repr(value)
            self.names[id(output)] = f"({text})" if text.startswith("-") else text
        elif isinstance(value, (list, dict)):
            self.names[id(output)] = f"{self.bind(_copier(value), 'constant')}()"
        else:
            self.names[id(output)] = self.bind(value, "constant")

    def prim_ListConstruct(self, node: Node, depth: int) -> None:
        self.assign(node, depth, f"[{', '.join(self.of(v) for v in node._inputs)}]")

    def prim_TupleConstruct(self, node: Node, depth: int) -> None:
        items = [self.of(v) for v in node._inputs]
        kind = node._outputs[0].type()
        if isinstance(kind, T.TupleType) and kind.name is not None:
            self.assign(node, depth, f"{self.bind(_values.named_tuple_class(kind), 'tuple')}({', '.join(items)})")
            return
        self.assign(node, depth, f"({', '.join(items)}{',' if len(items) == 1 else ''})")

    def prim_DictConstruct(self, node: Node, depth: int) -> None:
        items = [self.of(v) for v in node._inputs]
        pairs = ", ".join(f"{k}: {v}" for k, v in zip(items[::2], items[1::2]))
        self.assign(node, depth, f"{{{pairs}}}")

    def prim_TupleUnpack(self, node: Node, depth: int) -> None:
        if node._outputs:
            names = ", ".join(self.new(o) for o in node._outputs)
            self.line(depth, f"{names}{',' if len(node._outputs) == 1 else ''} = {self.of(node._inputs[0])}", node)

    def prim_ListUnpack(self, node: Node, depth: int) -> None:
        names = ", ".join(self.new(o) for o in node._outputs)
        checked = f"{self.bind(_unpack_list, 'unpack')}({self.of(node._inputs[0])}, {len(node._outputs)})"
        self.line(depth, f"{names}{',' if len(node._outputs) == 1 else ''} = {checked}", node)

    def prim_TupleIndex(self, node: Node, depth: int) -> None:
        self.assign(node, depth, f"{self.of(node._inputs[0])}[{self.of(node._inputs[1])}]")

    def prim_TupleSlice(self, node: Node, depth: int) -> None:
        self.assign(node, depth, f"{self.of(node._inputs[0])}[{node.attribute('beg')}:{node.attribute('end')}]")

    def prim_unchecked_cast(self, node: Node, depth: int) -> None:
        self.names[id(node._outputs[0])] = self.of(node._inputs[0])

    def prim_annotate(self, node: Node, depth: int) -> None:
        self.names[id(node._outputs[0])] = self.of(node._inputs[0])

    prim_unchecked_unwrap_optional = prim_unchecked_cast

    def prim_Uninitialized(self, node: Node, depth: int) -> None:
        self.names[id(node._outputs[0])] = "None"

    def prim_RaiseException(self, node: Node, depth: int) -> None:
        inputs = [self.of(v) for v in node._inputs]
        self.line(depth, f"_RaiseException({', '.join(inputs)})", node)

    def prim_Print(self, node: Node, depth: int) -> None:
        shown = self.bind(_arithmetic.to_text, "to_text")
        self.line(depth, f"print({', '.join(f'{shown}({self.of(v)})' for v in node._inputs)})", node)

    def prim_GetAttr(self, node: Node, depth: int) -> None:
        name = node.attribute("name")
        owner = self.of(node._inputs[0])
        direct = name.isidentifier() and not keyword.iskeyword(name)
        self.assign(node, depth, f"{owner}.{name}" if direct else f"getattr({owner}, {name!r})")

    def prim_SetAttr(self, node: Node, depth: int) -> None:
        """Containers stay the same objects: they are converted only where Python hands them over."""
        owner, value = (self.of(v) for v in node._inputs)
        kind = node._inputs[0].type()
        is_module = not isinstance(kind, T.ClassType) or kind.is_module
        store = self.bind(_store_in_module if is_module else object.__setattr__, "store")
        self.line(depth, f"{store}({owner}, {node.attribute('name')!r}, {value})", node)

    def prim_CreateObject(self, node: Node, depth: int) -> None:
        kind = self.bind(node._outputs[0].type(), "type")
        self.assign(node, depth, f"{self.bind(_values.ScriptObject, 'ScriptObject')}({kind})")

    def prim_isinstance(self, node: Node, depth: int) -> None:
        kinds = node.attribute("types")
        self.assign(
            node,
            depth,
            f"{self.bind(_is_instance, 'is_instance')}({self.of(node._inputs[0])}, {self.bind(tuple(kinds), 'types')})",
        )

    def prim_ModuleContainerIndex(self, node: Node, depth: int) -> None:
        owner, index = (self.of(v) for v in node._inputs)
        self.assign(node, depth, f"{self.bind(_module_at, 'module_at')}({owner}, {index})")

    def prim_EnumValue(self, node: Node, depth: int) -> None:
        self.assign(node, depth, f"{self.of(node._inputs[0])}.value")

    def prim_EnumName(self, node: Node, depth: int) -> None:
        self.assign(node, depth, f"{self.of(node._inputs[0])}.name")

    def prim_Enter(self, node: Node, depth: int) -> None:
        self._method_call(node, depth, "__enter__", [self.of(node._inputs[0])])
        if _is_autocast(node):
            self.line(depth, f"{self.bind(contexts.enter_autocast, 'autocast')}({self.of(node._inputs[0])})", node)

    def prim_Exit(self, node: Node, depth: int) -> None:
        if _is_autocast(node):
            self.line(depth, f"{self.bind(contexts.exit_autocast, 'autocast')}()", node)
        self._method_call(node, depth, "__exit__", [self.of(node._inputs[0]), "None", "None", "None"])

    def _method_call(self, node: Node, depth: int, name: str, inputs: list[str]) -> None:
        kind = node._inputs[0].type()
        if isinstance(kind, T.ClassType) and name in kind.methods:
            callee = self.bind(_caller(kind.methods[name]), name)
            self.assign(node, depth, f"{callee}({', '.join(inputs)})")
        else:
            self.assign(
                node,
                depth,
                f"{self.bind(_dynamic_call, 'call_method')}({inputs[0]}, {name!r}, {', '.join(inputs[1:])})",
            )

    def prim_CallMethod(self, node: Node, depth: int) -> None:
        name = node.attribute("name")
        inputs = [self.of(v) for v in node._inputs]
        self._method_call(node, depth, name, inputs)

    def prim_CallFunction(self, node: Node, depth: int) -> None:
        callee = self.bind(_caller(node.call), node.call.name.rpartition(".")[2])
        self.assign(node, depth, f"{callee}({', '.join(self.of(v) for v in node._inputs[1:])})")

    def prim_CompiledPart(self, node: Node, depth: int) -> None:
        self.assign(node, depth, f"{self.bind(node.call, 'part')}({', '.join(self.of(v) for v in node._inputs)})")

    def prim_PythonOp(self, node: Node, depth: int) -> None:
        callee = self.bind(_python_caller(node.call, node._outputs[0].type()), "python")
        self.assign(node, depth, f"{callee}({', '.join(self.of(v) for v in node._inputs)})")

    # ------------------------------------------------------------------ control flow

    def prim_If(self, node: Node, depth: int) -> None:
        outputs = [self.new(o) for o in node._outputs]
        self.line(depth, f"if {self.of(node._inputs[0])}:", node)
        for index, block in enumerate(node._blocks):
            before = len(self.lines)
            if index == 1:
                self.line(depth, "else:", None)
                before += 1
            self.block(block, depth + 1)
            if outputs:
                values = [self.of(v) for v in block._return._inputs]
                self.line(depth + 1, f"{', '.join(outputs)} = {', '.join(values)}", None)
            if len(self.lines) == before:
                if index == 1:
                    self.lines.pop()
                    self.places.pop()
                else:
                    self.line(depth + 1, "pass", None)

    def prim_Loop(self, node: Node, depth: int) -> None:
        trips, first = node._inputs[0], node._inputs[1]
        block = node._blocks[0]
        index, *carried = block._param._outputs
        outputs = [self.new(o) for o in node._outputs]
        if outputs:
            initial = ", ".join(self.of(v) for v in node._inputs[2:])
            self.line(depth, f"{', '.join(outputs)} = {initial}", None)
        for value, name in zip(carried, outputs):
            self.names[id(value)] = name
        counter = self.new(index)
        condition, *results = block._return._inputs
        always = condition.node()._kind == "prim::Constant" and condition.toIValue() is True
        starts = first.node()._kind == "prim::Constant" and first.toIValue() is True
        unbounded = trips.node()._kind == "prim::Constant" and trips.toIValue() == 2**63 - 1
        if always and starts and not unbounded:
            self.line(depth, f"for {counter} in range({self.of(trips)}):", node)
            self._loop_body(block, depth + 1, results, outputs, None)
            return
        going = f"{counter}_go"
        bound = "" if unbounded else f" and {counter} < {self.of(trips)}"
        self.line(depth, f"{counter}, {going} = 0, {self.of(first)}", None)
        self.line(depth, f"while {going}{bound}:", node)
        self._loop_body(block, depth + 1, results, outputs, (condition, going))
        self.line(depth + 1, f"{counter} += 1", None)

    def _loop_body(self, block: Block, depth: int, results: list[Value], outputs: list[str], going: Any) -> None:
        before = len(self.lines)
        self.block(block, depth)
        targets, values = list(outputs), [self.of(v) for v in results]
        if going is not None:
            targets.append(going[1])
            values.append(self.of(going[0]))
        pairs = [(t, v) for t, v in zip(targets, values) if t != v]
        if pairs:
            self.line(depth, f"{', '.join(t for t, _ in pairs)} = {', '.join(v for _, v in pairs)}", None)
        if len(self.lines) == before:
            self.line(depth, "pass", None)

    def prim_fork(self, node: Node, depth: int) -> None:
        self._closure(node, depth, _tasks.forked)

    def prim_awaitable(self, node: Node, depth: int) -> None:
        from flambeau.jit._await import _Await

        self._closure(node, depth, _Await)

    def _closure(self, node: Node, depth: int, start: Any) -> None:
        """A node whose block runs beside the rest or later."""
        block = node._blocks[0]
        name = f"_block_{self.new(node._outputs[0])}"
        self.line(depth, f"def {name}():", None)
        self.block(block, depth + 1)
        self.line(depth + 1, f"return {self._results(block)}", None)
        self.line(depth, f"{self.of(node._outputs[0])} = {self.bind(start, 'start')}({name})", node)


# ---------------------------------------------------------------------------------------------- run-time helpers


def _copier(value: Any) -> Any:
    import copy

    return lambda: copy.deepcopy(value)


def _caller(function: Any) -> Any:
    """A callable that lowers its target when it is first called."""
    if function._callable is not None:
        return function._callable

    def call(*args: Any) -> Any:
        return function.run()(*args)

    return call


def _python_caller(python: Any, kind: T.JitType) -> Any:
    def call(*args: Any) -> Any:
        result = python(*args)
        if isinstance(kind, (T.AnyType, T.NoneType)):
            return result
        return _values.to_script(result, kind, getattr(python, "__name__", "result"))

    return call


def _dynamic_call(owner: Any, name: str, *args: Any) -> Any:
    kind = owner._type() if isinstance(owner, _values.ScriptObject) else owner._script_type
    return kind.methods[name].run()(owner, *args)


def _store_in_module(module: Any, name: str, value: Any) -> None:
    if isinstance(value, (list, dict, tuple)):
        object.__setattr__(module, name, value)
    else:
        setattr(module, name, value)


def _module_at(container: Any, index: Any) -> Any:
    if isinstance(index, str):
        return container._modules[index]
    modules = list(container._modules.values())
    if not -len(modules) <= index < len(modules):
        raise IndexError("list index out of range")
    return modules[index]


def _unpack_list(items: Any, count: int) -> Any:
    if len(items) != count:
        raise RuntimeError(f"Expected {count} elements in a list but found {len(items)}")
    return items


def _is_instance(value: Any, kinds: tuple[T.JitType, ...]) -> bool:
    try:
        own = _values.infer_type(value)
    except TypeError:
        return False
    for kind in kinds:
        if T.is_subtype(own, kind):
            return True
        if isinstance(kind, (T.ListType, T.DictType)) and type(own) is type(kind) and not value:
            return True
        if isinstance(own, (T.ListType, T.DictType, T.TupleType)) and type(own) is type(kind):
            try:
                _values.convert(value, kind)
                if not isinstance(kind, T.ListType) or kind.element not in (T.FLOAT, T.COMPLEX):
                    return True
            except _values.Mismatch:
                continue
    return False


def _raise(message: str, cls: str | None = None) -> None:
    error = JitError(message)
    error._script_class = cls
    raise error


# ---------------------------------------------------------------------------------------------- lowering


def lower(function: Any) -> Any:
    """The callable of a function."""
    lowering = Lowering(function.graph, function.name)
    text = lowering.text()
    file = f"<torchscript {function.name} {next(_numbers)}>"
    scope = lowering.scope
    exec(compile(text, file, "exec"), scope)
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    body = scope["_function"]
    places = lowering.places
    short = function.name.rpartition(".")[2]

    def run(*args: Any) -> Any:
        try:
            return body(*args)
        except Exception as error:
            raise _located(error, file, places, short) from error

    run._script_body = body
    return run


def lowered_text(function: Any) -> str:
    """The Python program that runs a function."""
    return Lowering(function.ensure().graph, function.name).text()


def _frame(place: Any, name: str) -> str:
    line = place.source.first_line + place.line - 1
    return f'  File "{place.source.file}", line {line}, in {name}\n{place.highlight(with_place=False)}'


def _located(error: Exception, file: str, places: list[Node | None], name: str) -> Exception:
    """The error with the lines of the program that led to it."""
    frame = error.__traceback__
    line = None
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == file:
            line = frame.tb_lineno
        frame = frame.tb_next
    node = places[line - 1] if line is not None and line <= len(places) else None
    trace = list(getattr(error, "_script_trace", ()))
    original = getattr(error, "_script_original", error)
    if node is not None and node.range is not None:
        trace[:0] = [_frame(place, name) for place in (*node.callers, node.range)]
    told = "\n".join(trace)
    cls = getattr(original, "_script_class", None)
    kind = type(original).__name__ if cls is None else cls
    kind = "RuntimeError" if isinstance(original, JitError) and cls is None else kind
    head = "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call last):\n"
    message = f"{head}{told}\n{kind}: {original}\n"
    if isinstance(original, JitError):
        located: Exception = JitError(message)
    elif type(original) in (
        RuntimeError,
        ValueError,
        IndexError,
        TypeError,
        ZeroDivisionError,
        KeyError,
        NotImplementedError,
    ):
        located = _as_runtime_error(original, message)
    else:
        return error
    located._script_trace, located._script_original = trace, original
    if cls is not None:
        located._script_class = cls
    return located


def _as_runtime_error(original: Exception, message: str) -> Exception:
    """Errors of operators reach Python as RuntimeError, except for operators that are absent."""
    return NotImplementedError(message) if type(original) is NotImplementedError else RuntimeError(message)


__all__ = ["JitError", "lower", "lowered_text"]
