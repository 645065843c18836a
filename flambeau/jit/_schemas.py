"""Signatures of the operators that programs can name, and the choice of an overload by the types of the arguments.

`signatures.txt` holds one signature a line; those of one name are parsed when the name is first used. Matching has two steps: `match`
decides by types alone whether a call fits and which conversions it needs, and `Match.apply` inserts them into the graph.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

from flambeau.jit import _types as T
from flambeau.jit._ir import Graph, Value

NO_DEFAULT = object()
_ENUMERATED = {"ScalarType": "dtype", "Layout": "layout", "MemoryFormat": "memory_format"}
_SIMPLE: dict[str, T.JitType] = {
    "Tensor": T.TENSOR, "int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "complex": T.COMPLEX, "Scalar": T.NUMBER,
    "number": T.NUMBER, "str": T.STRING, "NoneType": T.NONE, "None": T.NONE, "Device": T.DEVICE, "Generator": T.GENERATOR,
    "Any": T.ANY, "SymInt": T.INT, "ScalarType": T.INT, "Layout": T.INT, "MemoryFormat": T.INT, "Stream": T.STREAM,
    "Storage": T.StorageType.get(), "AnyEnumType": T.AnyEnumType.get(), "list": T.AnyListType.get(),
    "AnyListType": T.AnyListType.get(), "tuple": T.AnyTupleType.get(), "AnyTupleType": T.AnyTupleType.get(),
    "AnyClassType": T.AnyClassType.get(), "Dimname": T.STRING, "QScheme": T.INT, "Device?": T.OptionalType(T.DEVICE),
    "PyObject": T.PyObjectType.get(), "SymBool": T.BOOL, "SymFloat": T.FLOAT,
}  # fmt: skip


class AliasInfo:
    """What a signature says of the memory of an argument."""

    def __init__(self, is_write: bool) -> None:
        self.is_write = is_write


class Argument:
    """One argument or result of a signature."""

    def __init__(
        self,
        name: str,
        kind: T.JitType,
        default: Any = NO_DEFAULT,
        kwarg_only: bool = False,
        length: int | None = None,
        written: bool = False,
        enumerated: str = "",
    ) -> None:
        self.name, self.type, self.default, self.kwarg_only = name, kind, default, kwarg_only
        self.N = length
        self.written = written
        self.enumerated = enumerated

    @property
    def real_type(self) -> T.JitType:
        return self.type

    @property
    def default_value(self) -> Any:
        return None if self.default is NO_DEFAULT else self.default

    @property
    def alias_info(self) -> AliasInfo | None:
        """How the argument shares memory; None where nothing is written."""
        return AliasInfo(True) if self.written else None

    @property
    def is_out(self) -> bool:
        return False

    def has_default_value(self) -> bool:
        return self.default is not NO_DEFAULT

    def __str__(self) -> str:
        text = str(self.type)
        if self.N is not None and isinstance(self.type, T.ListType):
            text = f"{self.type.element}[{self.N}]"
        text = f"{text} {self.name}".rstrip()
        return text if self.default is NO_DEFAULT else f"{text}={_default_text(self.default)}"

    __repr__ = __str__


def _default_text(value: Any) -> str:
    from flambeau.jit._ir import number_text, quoted

    if isinstance(value, str):
        return quoted(value)
    return number_text(value) if isinstance(value, float) else str(value)


class Signature:
    """Name, arguments and results of an operator, function or method."""

    def __init__(
        self, name: str, overload_name: str, arguments: list[Argument], returns: list[Argument], variadic: bool = False
    ) -> None:
        self.name, self.overload_name, self.arguments, self.returns = name, overload_name, arguments, returns
        self.variadic = variadic
        self.is_mutable = any(a.written for a in arguments)

    def result_type(self) -> T.JitType:
        if len(self.returns) == 1:
            return self.returns[0].type
        return T.TupleType(r.type for r in self.returns) if self.returns else T.NONE

    def __str__(self) -> str:
        parts = []
        starred = False
        for argument in self.arguments:
            if argument.kwarg_only and not starred:
                parts.append("*")
                starred = True
            parts.append(str(argument))
        if self.variadic:
            parts.append("...")
        results = ", ".join(str(r) for r in self.returns)
        head = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        enclosed = len(self.returns) != 1 or results.startswith("(")
        return f"{head}({', '.join(parts)}) -> {f'({results})' if enclosed else results}"

    __repr__ = __str__


# ---------------------------------------------------------------------------------------------- reading signatures


class _Reader:
    """A recursive-descent reader of one signature."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def peek(self) -> str:
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        return self.text[self.at : self.at + 1]

    def take(self, token: str) -> bool:
        self.peek()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def word(self) -> str:
        self.peek()
        start = self.at
        while self.at < len(self.text) and (self.text[self.at].isalnum() or self.text[self.at] in "_.:"):
            self.at += 1
        return self.text[start : self.at]

    def type(self) -> tuple[T.JitType, int | None, bool, str]:
        """A type, the length of a broadcast list, whether it is written to, and the enumeration it stands for."""
        written, length, enumerated = False, None, ""
        kind: T.JitType
        if self.take("("):
            parts = []
            while not self.take(")"):
                parts.append(self.type()[0])
                self.take(",")
            kind = T.TupleType(parts)
        else:
            name = self.word()
            enumerated = _ENUMERATED.get(name, "")
            if name in ("Dict", "Future", "Await", "RRef", "Optional", "Union"):
                self.take("(")
                inside = []
                while not self.take(")"):
                    inside.append(self.type()[0])
                    self.take(",")
                kind = _composed(name, inside)
            else:
                is_native = name.startswith(T.NativeClassType.PREFIX)
                kind = _SIMPLE.get(name) or (T.NativeClassType(name) if is_native else T.VarType(name))
        while True:
            if self.take("[]"):
                kind = T.ListType(kind)
            elif self.text[self.at : self.at + 1] == "[":
                end = self.text.index("]", self.at)
                length = int(self.text[self.at + 1 : end])
                kind, self.at = T.ListType(kind), end + 1
            elif self.text[self.at : self.at + 1] == "?":
                kind, self.at = T.OptionalType(kind), self.at + 1
            elif self.text[self.at : self.at + 1] == "(":
                end = self.text.index(")", self.at)
                written |= "!" in self.text[self.at : end]
                self.at = end + 1
            else:
                return kind, length, written, enumerated

    def default(self) -> Any:
        self.peek()
        start, depth = self.at, 0
        quote = ""
        while self.at < len(self.text):
            char = self.text[self.at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'":
                quote = char
            elif char == "[":
                depth += 1
            elif char == "]":
                depth -= 1
            elif char in ",)" and depth == 0:
                break
            self.at += 1
        return _literal(self.text[start : self.at].strip())

    def signature(self) -> Signature:
        full = self.word()
        name, _, overload = full.partition(".")
        self.take("(")
        arguments: list[Argument] = []
        keyword_only = variadic = False
        while not self.take(")"):
            if self.take("..."):
                variadic = True
            elif self.take("*"):
                keyword_only = True
            else:
                arguments.append(self.argument(keyword_only))
            self.take(",")
        self.take("->")
        returns = []
        if self.peek() == "(":
            self.take("(")
            while not self.take(")"):
                if self.take("..."):
                    variadic = True
                else:
                    returns.append(self.argument(False))
                self.take(",")
        else:
            returns.append(self.argument(False))
        return Signature(name, overload, arguments, returns, variadic)

    def argument(self, keyword_only: bool) -> Argument:
        kind, length, written, enumerated = self.type()
        name = self.word()
        default = self.default() if self.take("=") else NO_DEFAULT
        if length is not None and default is not NO_DEFAULT and isinstance(default, (int, float)):
            default = [default] * length
        inner = kind.element if isinstance(kind, T.OptionalType) else kind
        if default is not NO_DEFAULT and inner == T.FLOAT and isinstance(default, int):
            default = float(default)
        return Argument(name, kind, default, keyword_only, length, written, enumerated)


def _composed(name: str, inside: list[T.JitType]) -> T.JitType:
    if name == "Dict":
        return T.DictType(inside[0], inside[1])
    if name == "Union":
        return T.union_of(inside)
    classes: dict[str, Any] = {
        "Future": T.FutureType,
        "Await": T.AwaitType,
        "RRef": T.RRefType,
        "Optional": T.OptionalType,
    }
    return classes[name](inside[0])


def _literal(text: str) -> Any:
    import ast

    try:
        value = ast.literal_eval(text)
        return list(value) if isinstance(value, tuple) else value
    except (ValueError, SyntaxError):
        named = {"contiguous_format": 0, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "strided": 0}
        return named.get(text, text)


def parse_signature(text: str) -> Signature:
    return _Reader(text).signature()


_lines: dict[str, list[str]] = {}
_parsed: dict[str, list[Signature]] = {}


def parse_type(text: str) -> T.JitType:
    """A type as signatures have it."""
    return _Reader(text).type()[0]


def _load() -> None:
    path = pathlib.Path(__file__).with_name("signatures.txt")
    for line in path.read_text().splitlines():
        name = line.partition("(")[0].partition(".")[0]
        _lines.setdefault(name, []).append(line)


def aten_signatures(name: str) -> list[Signature]:
    """The overloads that PyTorch has of an operator."""
    if not _lines:
        _load()
    return [parse_signature(line) for line in _lines.get(name, ())]


def signatures(name: str) -> list[Signature]:
    """The overloads of a qualified name such as `aten::add`; empty if there is no such operator."""
    if name in _parsed:
        return _parsed[name]
    overloads = aten_signatures(name) or _registered(name)
    if overloads:
        _parsed[name] = overloads
    return overloads


def _registered(name: str) -> list[Signature]:
    """Operators that the table of signatures lacks: those of libraries, and our own."""
    from flambeau import _ops

    space, _, op = name.partition("::")
    if space in ("prim", "aten") and space != "aten":
        return []
    packet = getattr(_ops.namespace(space), op, None) if space not in ("prim",) else None
    if not isinstance(packet, _ops.OpOverloadPacket):
        return []
    overloads = []
    for schema in packet._schemas.values():
        text = (
            str(schema)
            .replace("Tensor|Scalar", "Tensor")
            .replace("dtype?", "ScalarType?")
            .replace("device?", "Device?")
        )
        try:
            overloads.append(parse_signature(text.replace("any ", "Any ")))
        except (ValueError, IndexError):
            continue
    return overloads


def exists(name: str) -> bool:
    return bool(signatures(name))


# ---------------------------------------------------------------------------------------------- matching


class Match:
    """A call that fits a signature: for each argument, how its value is made."""

    def __init__(self, signature: Signature, makers: list[Callable[[Graph], Value]], variables: dict[str, T.JitType]):
        self.signature, self.makers, self.variables = signature, makers, variables

    def apply(self, graph: Graph) -> list[Value]:
        return [make(graph) for make in self.makers]

    def returns(self) -> list[T.JitType]:
        return [T.substitute(r.type, self.variables) for r in self.signature.returns]


def _unpacked(value: Value, element: T.JitType) -> Callable[[Graph], Value]:
    """A list made of a tuple's elements."""

    def make(graph: Graph) -> Value:
        assert isinstance(value.type(), T.TupleType)
        items = list(graph.insert("prim::TupleUnpack", [value], value.type().contained())._outputs)
        return graph.insert("prim::ListConstruct", items, [T.ListType(element)])._outputs[0]

    return make


def _converted(value: Value, wanted: T.TupleType) -> Callable[[Graph], Value] | None:
    """A tuple of the same elements, each converted."""
    node = value.node()
    if node._kind != "prim::TupleConstruct":
        return None
    makers = [convert(item, kind, {}, True) for item, kind in zip(node._inputs, wanted.items)]
    if any(maker is None for maker in makers):
        return None

    def make(graph: Graph) -> Value:
        items = [maker(graph) for maker in makers if maker is not None]
        return graph.insert("prim::TupleConstruct", items, [wanted])._outputs[0]

    return make


def _as_is(value: Value) -> Callable[[Graph], Value]:
    return lambda graph: value


def _through(op: str, value: Value, kind: T.JitType) -> Callable[[Graph], Value]:
    return lambda graph: graph.insert(op, [value], [kind])._outputs[0]


def _repeated(value: Value, count: int) -> Callable[[Graph], Value]:
    return lambda graph: graph.insert("prim::ListConstruct", [value] * count, [T.ListType(value.type())])._outputs[0]


_IMPLICIT = {
    T.FLOAT: "aten::FloatImplicit",
    T.INT: "aten::IntImplicit",
    T.COMPLEX: "aten::ComplexImplicit",
    T.NUMBER: "aten::ScalarImplicit",
}
_EXPLICIT = {T.FLOAT: "aten::Float", T.INT: "aten::Int", T.COMPLEX: "aten::Complex"}


def convert(
    value: Value, formal: T.JitType, variables: dict[str, T.JitType], conversions: bool, length: int | None = None
) -> Callable[[Graph], Value] | None:
    """How a value becomes one of a formal type; None if it cannot."""
    actual = value.type()
    wanted = formal.element if isinstance(formal, T.OptionalType) and actual != T.NONE else formal
    if isinstance(wanted, T.ListType) and isinstance(actual, T.TupleType):
        element = wanted.element
        parts = actual.items
        if T.has_variables(element):
            joined = parts[0] if parts else T.TENSOR
            if any(T.unify(joined, p) != joined for p in parts) or not T.bind(element, joined, variables):
                return None
            return _unpacked(value, joined)
        if all(T.is_subtype(p, element) for p in parts):
            return _unpacked(value, element)
        return None
    if isinstance(wanted, T.ListType) and length is not None and T.is_subtype(actual, wanted.element):
        return _repeated(value, length)
    if T.has_variables(formal):
        return _as_is(value) if T.bind(formal, actual, variables) else None
    if T.is_subtype(actual, formal):
        return _as_is(value)
    if not conversions:
        return None
    if actual == T.TENSOR and wanted in _IMPLICIT:
        return _through(_IMPLICIT[wanted], value, wanted)
    if actual == T.BOOL and wanted in (T.INT, T.FLOAT, T.NUMBER):
        kind = T.FLOAT if wanted == T.FLOAT else T.INT
        return _through(_EXPLICIT[kind], value, kind)
    if actual == T.NUMBER and wanted in _EXPLICIT:
        return _through(_EXPLICIT[wanted], value, wanted)
    if actual == T.STRING and wanted == T.DEVICE:
        return _through("aten::device", value, T.DEVICE)
    if isinstance(actual, T.TupleType) and isinstance(wanted, T.TupleType) and len(actual.items) == len(wanted.items):
        return _converted(value, wanted)
    return None


def _constant(value: Any, kind: T.JitType) -> Callable[[Graph], Value]:
    def make(graph: Graph) -> Value:
        inner = kind.element if isinstance(kind, T.OptionalType) else kind
        if value is None:
            return graph.insertConstant(None, T.NONE)
        if isinstance(value, list):
            element = inner.element if isinstance(inner, T.ListType) else T.INT
            return graph.insert(
                "prim::ListConstruct", [graph.insertConstant(v) for v in value], [T.ListType(element)]
            )._outputs[0]
        if inner == T.DEVICE and isinstance(value, str):
            import flambeau

            return graph.insertConstant(flambeau.device(value), T.DEVICE)
        if isinstance(inner, (T.NumberType, T.AnyType)) or (inner == T.FLOAT and isinstance(value, float)):
            return graph.insertConstant(value)
        return graph.insertConstant(value, inner if not isinstance(inner, T.TensorType) else None)

    return make


def _is_vararg_list(signature: Signature, index: int) -> bool:
    """Whether trailing positional arguments may be gathered into this list: `x.view(2, 3)`."""
    argument = signature.arguments[index]
    last = index + 1 == len(signature.arguments) or signature.arguments[index + 1].kwarg_only
    return last and isinstance(argument.type, T.ListType) and argument.N is None and not T.has_variables(argument.type)


def match(signature: Signature, args: list[Value], kwargs: dict[str, Value], conversions: bool) -> Match | str:
    """The match of a call, or the reason why it does not fit."""
    makers: list[Callable[[Graph], Value]] = []
    variables: dict[str, T.JitType] = {}
    position = 0
    used: set[str] = set()
    if "input" in kwargs and signature.name.startswith("aten::") and any(a.name == "self" for a in signature.arguments):
        kwargs = {"self" if name == "input" else name: value for name, value in kwargs.items()}
    for index, argument in enumerate(signature.arguments):
        maker: Callable[[Graph], Value] | None
        if not argument.kwarg_only and position < len(args):
            value = args[position]
            if argument.name in kwargs:
                return f"Argument {argument.name} specified twice in schema."
            maker = convert(value, argument.type, variables, conversions, argument.N)
            rest = args[position:]
            if maker is None and _is_vararg_list(signature, index):
                element = argument.type.element
                converted = [convert(v, element, variables, conversions) for v in rest]
                if all(c is not None for c in converted):
                    makers.append(_gathered(converted, element))
                    position = len(args)
                    continue
            if maker is None:
                return _mismatch(argument, value.type(), index, position)
            position += 1
        elif argument.name in kwargs:
            value = kwargs[argument.name]
            used.add(argument.name)
            maker = convert(value, argument.type, variables, conversions, argument.N)
            if maker is None:
                return _mismatch(argument, value.type(), index, None)
        elif argument.default is not NO_DEFAULT:
            maker = _constant(argument.default, argument.type)
        else:
            return f"Argument {argument.name} not provided."
        makers.append(maker)
    if position < len(args):
        if not signature.variadic:
            return f"Expected at most {position} arguments but found {len(args)} positional arguments."
        makers += [_as_is(v) for v in args[position:]]
    for name in kwargs:
        if name not in used:
            return f"Unknown keyword argument '{name}'."
    return Match(signature, makers, variables)


def _gathered(makers: list[Any], element: T.JitType) -> Callable[[Graph], Value]:
    def make(graph: Graph) -> Value:
        return graph.insert("prim::ListConstruct", [m(graph) for m in makers], [T.ListType(element)])._outputs[0]

    return make


def _mismatch(argument: Argument, actual: T.JitType, index: int, position: int | None) -> str:
    name = argument.name or str(index)
    inferred = " (inferred)" if isinstance(argument.type, T.TensorType) and argument.type.inferred else ""
    text = (
        f"Expected a value of type '{argument.type.annotation_str}{inferred}' for argument '{name}' but instead found type "
        f"'{actual.annotation_str}'."
    )
    if inferred:
        text += f"\nInferred '{name}' to be of type 'Tensor' because it was not annotated with an explicit type."
    return text


def match_any(
    candidates: list[Signature], args: list[Value], kwargs: dict[str, Value]
) -> Match | list[tuple[Signature, str]]:
    """The first signature that a call fits, without conversions if possible; otherwise why each does not fit."""
    reasons: list[tuple[Signature, str]] = []
    for conversions in (False, True):
        reasons = []
        for signature in candidates:
            result = match(signature, args, kwargs, conversions)
            if isinstance(result, Match):
                return result
            reasons.append((signature, result))
    return reasons
