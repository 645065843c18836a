"""Definitions and derivatives of operators, written in Python, as data that native code evaluates (csrc/definitions).

Every function that a record names, and every function and constant of the package that those use, is parsed and written as a
tree into generated/core/definitions.cpp. Names are resolved here: a node is a local variable, or a global by its module
and name. Functions stay written once, in Python; a process without Python runs the same text.

A node is its kind (one byte), an index into the table of strings, the number of its children, and these.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# csrc/definitions/node.h has the same order.
KINDS = (
    "Absent Int Float Imaginary String None True False Ellipsis Local Global Attribute Call Keyword Binary Unary And Or Compare "
    "Condition Subscript Slice Tuple List Dict Set Comprehension Generator Join Format Starred Lambda Walrus Function Parameter "
    "Return Assign Augment If For While Break Continue Pass Raise With Try Block Each Class Delete"
).split()
CODE = {name: code for code, name in enumerate(KINDS)}


class Module:
    """A module's functions, constants and imported names."""

    def __init__(self, name: str, text: str | None = None) -> None:
        self.name = name
        base = ROOT / name.replace(".", "/")
        self.path = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
        tree = ast.parse(self.path.read_text() if text is None else text)
        self.members: dict[str, ast.stmt] = {}
        self.imports: dict[str, str] = {}  # a name, and the path of what it stands for
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.imports |= {a.asname or a.name.split(".")[0]: a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom):
                self.imports |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                self.members[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.members[node.targets[0].id] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                for i, name in enumerate(n.id for n in node.targets[0].elts if isinstance(n, ast.Name)):
                    item = ast.Subscript(node.value, ast.Constant(i), ast.Load())
                    self.members[name] = ast.Assign([ast.Name(name, ast.Store())], item)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.members[node.target.id] = node


def modules_of(path: str) -> tuple[str, str]:
    """The module of a dotted path, and what is below it."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        base = ROOT / "/".join(parts[:end])
        if base.with_suffix(".py").exists() or (base / "__init__.py").exists():
            return ".".join(parts[:end]), ".".join(parts[end:])
    return parts[0], ".".join(parts[1:])


def bound_names(node: ast.AST) -> set[str]:
    """Names that a function binds: parameters, targets and nested functions."""
    names = set()
    for child in ast.walk(node):
        if isinstance(child, ast.arg):
            names.add(child.arg)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        elif isinstance(child, ast.FunctionDef) and child is not node:
            names.add(child.name)
    return names - (
        {f.name for f in node.body if isinstance(f, ast.FunctionDef)} if isinstance(node, ast.ClassDef) else set()
    )


class Encoder:
    """Trees as bytes; `wanted` collects the globals that they use."""

    def __init__(self) -> None:
        self.strings: dict[str, int] = {}
        self.wanted: list[tuple[str, str]] = []
        self.module: Module = None  # type: ignore[assignment]
        self.local: set[str] = set()

    def member(self, module: Module, name: str) -> bytes:
        node = module.members[name]
        is_scope = isinstance(node, (ast.FunctionDef, ast.ClassDef))
        self.module, self.local = module, bound_names(node) if is_scope else set()
        if isinstance(node, ast.FunctionDef):
            return self.function(node)
        if isinstance(node, ast.ClassDef):
            if node.bases or node.decorator_list:
                raise Unsupported(f"class {name} with bases or decorators")
            return self.node("Class", name, [self.function(f) for f in node.body if isinstance(f, ast.FunctionDef)])
        return self.expr(node.value)  # type: ignore[attr-defined]

    def node(self, kind: str, text: str = "", children: Iterable[bytes] = ()) -> bytes:
        parts = list(children)
        index = self.strings.setdefault(text, len(self.strings))
        return bytes([CODE[kind]]) + varint(index) + varint(len(parts)) + b"".join(parts)

    # ---------------------------------------------------------------- statements

    def function(self, node: ast.FunctionDef) -> bytes:
        return self.node("Function", node.name, [*self.parameters(node.args), self.block(node.body)])

    def parameters(self, args: ast.arguments) -> Iterator[bytes]:
        positional = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
        for arg, default in zip(positional, defaults):
            yield self.node("Parameter", arg.arg, [] if default is None else [self.expr(default)])
        if args.vararg:
            yield self.node("Parameter", "*" + args.vararg.arg)
        for arg, default in zip(args.kwonlyargs, args.kw_defaults):
            yield self.node("Parameter", arg.arg, [] if default is None else [self.expr(default)])
        if args.kwarg:
            yield self.node("Parameter", "**" + args.kwarg.arg)

    def block(self, body: list[ast.stmt]) -> bytes:
        return self.node("Block", "", [encoded for s in body if (encoded := self.statement(s))])

    def statement(self, s: ast.stmt) -> bytes | None:
        match s:
            case ast.Return(value=value):
                return self.node("Return", "", [] if value is None else [self.expr(value)])
            case ast.Assign(targets=targets, value=value):
                return self.node("Assign", "", [self.expr(value), *map(self.expr, targets)])
            case ast.AnnAssign(target=target, value=value):
                return None if value is None else self.node("Assign", "", [self.expr(value), self.expr(target)])
            case ast.AugAssign(target=target, op=op, value=value):
                return self.node("Augment", type(op).__name__, [self.expr(target), self.expr(value)])
            case ast.If(test=test, body=body, orelse=orelse):
                return self.node("If", "", [self.expr(test), self.block(body), self.block(orelse)])
            case ast.For(target=target, iter=iterable, body=body):
                return self.node("For", "", [self.expr(target), self.expr(iterable), self.block(body)])
            case ast.While(test=test, body=body):
                return self.node("While", "", [self.expr(test), self.block(body)])
            case ast.Raise(exc=exc):
                return self.node("Raise", "", [] if exc is None else [self.expr(exc)])
            case ast.With(items=items, body=body):
                return self.node("With", "", [*(self.expr(i.context_expr) for i in items), self.block(body)])
            case ast.Try(body=body, handlers=handlers):
                return self.node("Try", "", [self.block(body), *(self.block(h.body) for h in handlers)])
            case ast.FunctionDef():
                return self.function(s)
            case ast.Delete(targets=targets):
                return self.node("Delete", "", map(self.expr, targets))
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assert():
                return None  # documentation, and names that are resolved here
            case ast.Expr(value=value):
                return self.expr(value)
            case ast.Break() | ast.Continue() | ast.Pass():
                return self.node(type(s).__name__)
        raise Unsupported(type(s).__name__)

    # ---------------------------------------------------------------- expressions

    def path(self, node: ast.expr) -> str | None:
        """The dotted path of a global, or None."""
        if isinstance(node, ast.Name):
            if node.id in self.local:
                return None
            if node.id in self.module.imports:
                return self.module.imports[node.id]
            if node.id in self.module.members:
                return f"{self.module.name}.{node.id}"
            return f"builtins.{node.id}" if hasattr(builtins, node.id) else None
        if isinstance(node, ast.Attribute) and (base := self.path(node.value)) is not None:
            module, rest = modules_of(base)
            if rest and (module in LOADED or (ROOT / module.replace(".", "/")).exists()) and has_member(module, rest):
                return None  # an attribute of a member
            return f"{base}.{node.attr}"
        return None

    def constant(self, value: object) -> bytes:
        if value is None or value is True or value is False:
            return self.node(str(value))
        if value is Ellipsis:
            return self.node("Ellipsis")
        kind = {int: "Int", float: "Float", complex: "Imaginary", str: "String"}.get(type(value))
        if kind is None:
            raise Unsupported(repr(value))
        return self.node(
            kind, repr(value.imag) if isinstance(value, complex) else str(value) if kind != "Float" else repr(value)
        )

    def expr(self, e: ast.expr | None) -> bytes:
        if e is None:
            return self.node("Absent")
        path = self.path(e)
        if path is not None:
            module, name = modules_of(path)
            self.wanted.append((module, name))
            return self.node("Global", f"{module}:{name}")
        simple = self.simple(e)
        return self.compound(e) if simple is None else simple

    def simple(self, e: ast.expr) -> bytes | None:
        match e:
            case ast.Constant(value=value):
                return self.constant(value)
            case ast.Name(id=name):
                return self.node("Local", name)
            case ast.Attribute(value=value, attr=attr):
                return self.node("Attribute", attr, [self.expr(value)])
            case ast.BinOp(left=left, op=op, right=right):
                return self.node("Binary", type(op).__name__, [self.expr(left), self.expr(right)])
            case ast.UnaryOp(op=op, operand=operand):
                return self.node("Unary", type(op).__name__, [self.expr(operand)])
            case ast.BoolOp(op=op, values=values):
                return self.node(type(op).__name__, "", map(self.expr, values))
            case ast.Compare(left=left, ops=ops, comparators=others):
                names = " ".join(type(op).__name__ for op in ops)
                return self.node("Compare", names, [self.expr(left), *map(self.expr, others)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.node("Condition", "", [self.expr(test), self.expr(body), self.expr(orelse)])
            case ast.Subscript(value=value, slice=index):
                return self.node("Subscript", "", [self.expr(value), self.expr(index)])
            case ast.Slice(lower=lower, upper=upper, step=step):
                return self.node("Slice", "", [self.expr(lower), self.expr(upper), self.expr(step)])
            case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts):
                return self.node(type(e).__name__, "", map(self.expr, elts))
            case ast.Starred(value=value):
                return self.node("Starred", "", [self.expr(value)])
        return None

    def compound(self, e: ast.expr) -> bytes:
        match e:
            case ast.Call(func=func, args=args, keywords=keywords):
                named = [self.node("Keyword", k.arg or "", [self.expr(k.value)]) for k in keywords]
                return self.node("Call", "", [self.expr(func), *map(self.expr, args), *named])
            case ast.Dict(keys=keys, values=values):
                pairs = [self.expr(x) for pair in zip(keys, values) for x in pair]
                return self.node("Dict", "", pairs)
            case ast.ListComp(elt=elt, generators=each) | ast.GeneratorExp(elt=elt, generators=each):
                return self.comprehension("list", [elt], each)
            case ast.SetComp(elt=elt, generators=each):
                return self.comprehension("set", [elt], each)
            case ast.DictComp(key=key, value=value, generators=each):
                return self.comprehension("dict", [key, value], each)
            case ast.JoinedStr(values=values):
                return self.node("Join", "", map(self.expr, values))
            case ast.FormattedValue(value=value, conversion=conversion):
                return self.node("Format", "r" if conversion == ord("r") else "", [self.expr(value)])
            case ast.Lambda(args=args, body=body):
                returned = self.node("Block", "", [self.node("Return", "", [self.expr(body)])])
                return self.node("Lambda", "<lambda>", [*self.parameters(args), returned])
            case ast.NamedExpr(target=target, value=value):
                return self.node("Walrus", "", [self.expr(target), self.expr(value)])
        raise Unsupported(type(e).__name__)

    def comprehension(self, kind: str, elements: list[ast.expr], each: list[ast.comprehension]) -> bytes:
        loops = [self.node("Each", "", [self.expr(g.target), self.expr(g.iter), *map(self.expr, g.ifs)]) for g in each]
        return self.node("Comprehension", kind, [*map(self.expr, elements), *loops])


class Unsupported(Exception):
    """A construct that native code does not evaluate."""


LOADED: dict[str, Module] = {}


def module_of(name: str) -> Module:
    if name not in LOADED:
        LOADED[name] = Module(name)
    return LOADED[name]


def add_module(name: str, text: str) -> None:
    """A module that is generated, and no file."""
    LOADED[name] = Module(name, text)


def has_member(module: str, name: str) -> bool:
    """Whether the package defines it in Python."""
    if module in LOADED:
        return name in LOADED[module].members
    base = ROOT / module.replace(".", "/")
    if not module.startswith("flambeau.") or not (base.with_suffix(".py").exists() or (base / "__init__.py").exists()):
        return False
    return name in module_of(module).members


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def collect(roots: Iterable[tuple[str, str]]) -> tuple[Encoder, dict[tuple[str, str], bytes]]:
    """All functions and constants that the roots use, encoded."""
    encoder = Encoder()
    encoded: dict[tuple[str, str], bytes] = {}
    pending = list(roots)
    seen = set(pending)
    while pending:
        module, name = pending.pop()
        while (
            has_member(module, name) is False and module.startswith("flambeau.") and (home := reexported(module, name))
        ):
            module, name = home
        if (module, name) in encoded or not has_member(module, name):
            continue
        encoder.wanted = []
        try:
            encoded[module, name] = encoder.member(module_of(module), name)
        except Unsupported:
            continue
        for wanted in encoder.wanted:
            if wanted not in seen:
                seen.add(wanted)
                pending.append(wanted)
    return encoder, encoded


def reexported(module: str, name: str) -> tuple[str, str] | None:
    base = ROOT / module.replace(".", "/")
    if not (base.with_suffix(".py").exists() or (base / "__init__.py").exists()):
        return None
    path = module_of(module).imports.get(name)
    return modules_of(path) if path and path.startswith("flambeau.") else None


def literal(data: bytes) -> str:
    """Bytes as C++ string literals."""
    lines = []
    for at in range(0, len(data), 64):
        lines.append('"' + "".join(f"\\{byte:03o}" for byte in data[at : at + 64]) + '"')
    return "\n".join(lines)


def generate(roots: Iterable[tuple[str, str]], out: Path) -> None:
    encoder, encoded = collect(roots)
    offsets, data = [], b""
    for (module, name), content in sorted(encoded.items()):
        offsets.append((f"{module}:{name}", len(data)))
        data += content
    strings = b"".join(varint(len(raw)) + raw for raw in (text.encode() for text in encoder.strings))
    rows = "\n".join(f'  {{"{name}", {offset}}},' for name, offset in offsets)
    text = f"""// Generated by tools/generate_definitions.py from the definitions in flambeau/ops.
#include "definitions/node.h"

namespace fl::definitions {{

const char definition_strings[] = {literal(strings)};
const size_t definition_strings_size = {len(strings)};
const char definition_bytes[] = {literal(data)};
const size_t definition_bytes_size = {len(data)};
const DefinitionEntry definition_entries[] = {{
{rows}
}};
const size_t definition_count = {len(offsets)};

}}  // namespace fl::definitions
"""
    path = out / "core" / "definitions.cpp"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
