"""Gradients of pointwise operators as Python text, operator by operator, for gradients of gradients without Python.

The fused kernel of a gradient has no derivative. Where the backward is recorded, native code evaluates the same expression by these
definitions instead; a process with Python walks the expression itself (flambeau/ops/evaluate.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

MODULE = "flambeau.ops.gradient_definitions"  # which exists in the generated table alone
HELPERS = "flambeau.ops.evaluate_natively"

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip
_NAMES = {
    "land": "logical_and", "lor": "logical_or", "lnot": "logical_not", "bitnot": "bitwise_not", "gelu_erf": "_ops.gelu",
    "silu": "_ops.silu", "mish": "_ops.mish", "ipow": "pow", "trunc_divide": "trunc",
}  # fmt: skip


class Unknown(Exception):
    """An expression that no operators stand for."""


class _Text:
    """The statements of one expression; what occurs twice is computed once."""

    def __init__(self, operators: set[str]) -> None:
        self.operators = operators
        self.lines: list[str] = []
        self.known: dict[int, str] = {}

    def of(self, node: Any) -> str:
        if node.op == "const":
            return self.number(node.args[0])
        if node.op == "arg":
            return str(node.args[0])
        if id(node) not in self.known:
            text = self.call(node.op, [self.of(a) for a in node.args])
            name = f"t{len(self.lines)}"
            self.lines.append(f"{name} = {text}")
            self.known[id(node)] = name
        return self.known[id(node)]

    def number(self, value: Any) -> str:
        if isinstance(value, complex):
            raise Unknown
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        return f"({value!r})"

    def call(self, op: str, args: list[str]) -> str:
        if op in _BINARY:
            return f"{args[0]} {_BINARY[op]} {args[1]}"
        if op == "neg":
            return f"-{args[0]}"
        if op == "where":
            return f"chosen({', '.join(args)}, g)"
        if op == "trigamma":
            return f"fl.polygamma(1, lifted({args[0]}, g))"
        path = _NAMES.get(op, op)
        if path.removeprefix("_ops.") not in self.operators:
            path = f"special_{op}"
        if path.removeprefix("_ops.") not in self.operators:
            raise Unknown
        return f"fl.{path}({', '.join(f'lifted({a}, g)' for a in args)})"


def definition(record: Any, operators: set[str]) -> str | None:
    """The function of one gradient, with the parameters of its operator; None where there is none for real numbers."""
    select, table = record.details["select"], record.details["table"]
    from flambeau.ops import expr

    names = [a.name for a in record.schema.args]
    lines = [f"def {record.name}({', '.join(names)}):"]
    cases = table.items() if select else [("", table.get("f", table.get("")))]
    leaves = [expr.arg(n) for n in names if n != select]
    try:
        for key, body in cases:
            if body is None:
                return None
            text = _Text(operators)
            result = text.of(expr.lift(body(*leaves)))
            indent = "    "
            if select:
                lines.append(f"    if {select} == {key!r}:")
                indent = "        "
            lines += [indent + line for line in text.lines]
            lines.append(f"{indent}return {result}")
    except Unknown:
        return None
    return "\n".join(lines)


def definitions(records: Iterable[Any], operators: set[str]) -> tuple[str, list[str]]:
    """The text of a module with the gradients that have a definition, and their names."""
    operators = operators | {name.partition(".")[0] for name in operators}
    texts = {r.name: text for r in records if (text := definition(r, operators)) is not None}
    head = f"import flambeau as fl\nfrom {HELPERS} import chosen, lifted\n\n"
    return head + "\n\n".join(texts.values()) + "\n", list(texts)
