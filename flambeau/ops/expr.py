"""Scalar expressions: the arithmetic of a pointwise record, as typed data rather than text.

A record's lambda is called with `Expr` leaves and returns an `Expr`. Walks over the result print C++ (the eager
kernels), differentiate it (the fused backward kernels) and, in the compiler, become a loop body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

Number = Union[bool, int, float, complex]

COMBINATIONS = frozenset(
    ("add", "mul", "bitor", "bitand", "maximum", "minimum")
)  # associative, as reductions need them
ARITHMETIC = frozenset(("add", "sub", "mul", "div"))
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
# Of integers, the same modulo 2**64 whether the highest bit is taken for a sign or not.
MODULAR = frozenset(("arg", "const", "add", "sub", "mul", "neg", "bitand", "bitor", "bitxor", "bitnot", "lshift", "eq", "ne", "where"))  # fmt: skip
DIVISIONS = frozenset(("div", "floor_divide", "remainder", "fmod", "trunc_divide"))  # of integers, not by zero


class Expr:
    """One node: an operation name and its operands (`Expr`s, or one payload for leaves)."""

    __slots__ = ("op", "args")

    def __init__(self, op: str, *args: object) -> None:
        self.op = op
        self.args = args

    def __repr__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.args))})"

    def __add__(self, other: Operand) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return call("div", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __and__(self, other: Operand) -> Expr:
        return call("bitand", self, other)

    def __or__(self, other: Operand) -> Expr:
        return call("bitor", self, other)

    def __xor__(self, other: Operand) -> Expr:
        return call("bitxor", self, other)

    def __invert__(self) -> Expr:
        return call("bitnot", self)

    def __lshift__(self, other: Operand) -> Expr:
        return call("lshift", self, other)

    def __rshift__(self, other: Operand) -> Expr:
        return call("rshift", self, other)

    def __lt__(self, other: Operand) -> Expr:
        return call("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return call("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return call("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return call("ge", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return call("eq", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return call("ne", self, other)  # type: ignore[arg-type]

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError("[expr] expected where(cond, a, b), got a Python branch on an expression")


Operand = Union[Expr, Number]


def lift(value: Operand) -> Expr:
    """A Python number as a literal of the loop's compute type."""
    return value if isinstance(value, Expr) else Expr("const", value)


def is_modular(node: Expr) -> bool:
    """Whether loops over int64 compute what loops over uint64 would."""
    return node.op in MODULAR and all(is_modular(a) for a in node.args if isinstance(a, Expr))


def call(op: str, *args: Operand) -> Expr:
    return Expr(op, *map(lift, args))


def arg(name: str) -> Expr:
    """An operand (tensor element) or scalar parameter of the record, by its schema name."""
    return Expr("arg", name)


def function(name: str) -> Callable[..., Expr]:
    """The expression-building function for `fl::math::<name>`."""

    def build(*args: Operand) -> Expr:
        return call(name, *args)

    build.__name__ = name
    return build


def where(cond: Operand, a: Operand, b: Operand) -> Expr:
    """`cond ? a : b`, evaluated without a branch."""
    return call("where", cond, a, b)


def land(a: Operand, b: Operand) -> Expr:
    """Logical and of two conditions (comparisons give conditions)."""
    return call("land", a, b)


def lor(a: Operand, b: Operand) -> Expr:
    """Logical or of two conditions."""
    return call("lor", a, b)


def lnot(a: Operand) -> Expr:
    """Logical negation of a condition."""
    return call("lnot", a)


def isnan(x: Operand) -> Expr:
    return call("ne", x, x)


def __getattr__(name: str) -> Callable[..., Expr]:
    """Any other name is a function of `fl::math`: `expr.exp(x)` prints `fl::math::exp(x)`."""
    if name.startswith("_"):
        raise AttributeError(name)
    return function(name)


def fingerprint(node: Expr) -> str:
    """A digest of an expression: the same for the same arithmetic, in every process."""
    import hashlib

    digests: dict[int, bytes] = {}

    def visit(at: Expr) -> bytes:
        digest = digests.get(id(at))
        if digest is None:
            parts = [visit(a) if isinstance(a, Expr) else repr(a).encode() for a in at.args]
            digest = digests[id(at)] = hashlib.sha1(b"\0".join([at.op.encode(), *parts])).digest()
        return digest

    return visit(node).hex()[:20]


# ---------------------------------------------------------------- printing C++

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "bitand": "&",
    "bitor": "|",
    "bitxor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "land": "&&",
    "lor": "||",
}
_PREFIX = {"neg": "-", "bitnot": "~", "lnot": "!"}


def literal(value: Number) -> str:
    """A number as a C++ literal of compute type T."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"T({value.real!r}, {value.imag!r})"
    if value != value:
        return "std::numeric_limits<T>::quiet_NaN()"
    if value in (float("inf"), float("-inf")):
        return ("-" if value < 0 else "") + "std::numeric_limits<T>::infinity()"
    return f"T({value!r})"


class CppPrinter:
    """Prints an expression as C++ statements, each shared subexpression computed once."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names  # schema name -> C++ variable
        self.lines: list[str] = []
        self._seen: dict[tuple[object, ...], str] = {}

    def visit(self, node: Expr) -> str:
        if node.op == "const":
            return literal(node.args[0])  # type: ignore[arg-type]
        if node.op == "arg":
            return self.names[node.args[0]]  # type: ignore[index]
        args = [self.visit(a) for a in node.args]  # type: ignore[arg-type]
        key = (node.op, *args)
        if key not in self._seen:
            name = f"t{len(self._seen)}"
            self._seen[key] = name
            self.lines.append(f"const auto {name} = {self._text(node.op, args)};")
        return self._seen[key]

    @staticmethod
    def _text(op: str, args: list[str]) -> str:
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _PREFIX:
            return f"{_PREFIX[op]}{args[0]}"
        if op == "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        return f"math::{op}({', '.join(args)})"


class HoistingPrinter(CppPrinter):
    """Prints the body of a loop; what none of the loop's elements is part of goes to another printer, as `hoisted`."""

    def __init__(self, names: dict[str, str], outside: CppPrinter) -> None:
        super().__init__(names)
        self.outside = outside
        self.hoisted: list[str] = []  # in the outside printer's words; u0, u1 ... here

    def varies(self, node: Expr) -> bool:
        if node.op == "const":
            return False
        return node.args[0] in self.names if node.op == "arg" else any(self.varies(a) for a in node.args)  # type: ignore[arg-type]

    def visit(self, node: Expr) -> str:
        if node.op == "const" or self.varies(node):
            return super().visit(node)
        value = self.outside.visit(node)
        if value not in self.hoisted:
            self.hoisted.append(value)
        return f"u{self.hoisted.index(value)}"
