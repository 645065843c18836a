"""Expressions of sizes as the text that PyTorch writes (SymPy's), and back. Reading parses; it evaluates nothing.

    Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(1))

Conditions that calls are held to are Python text over the sizes of inputs: `L['x'].size()[0] % 2 == 0`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from flambeau.export._pt2.schema import SerializeError
from flambeau.ops.symbolic import condition as conditions
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Expr, constant, floordiv, maximum, minimum, modulo, power, symbol

_FUNCTIONS = {"floordiv": "FloorDiv", "max": "Max", "min": "Min"}


def text_of(expr: Expr) -> str:
    """An expression as SymPy's constructors."""
    if expr.is_constant:
        return f"Integer({expr.constant})"
    terms = []
    for monomial, factor in expr.terms.items():
        factors = [_atom_text(atom) for atom in monomial]
        if factor != 1 or not factors:
            factors.insert(0, f"Integer({factor})")
        terms.append(factors[0] if len(factors) == 1 else f"Mul({', '.join(factors)})")
    return terms[0] if len(terms) == 1 else f"Add({', '.join(terms)})"


def _atom_text(atom: Atom) -> str:
    if atom.kind == "symbol":
        sign = "" if atom.name.startswith("u") else "positive=True, "
        return f"Symbol({atom.name!r}, {sign}integer=True)"
    return f"{_FUNCTIONS[atom.kind]}({', '.join(text_of(arg) for arg in atom.args)})"


def read_expr(text: str) -> Expr:
    """The expression that a text stands for."""
    try:
        return _expr(ast.parse(text, mode="eval").body)
    except (SyntaxError, RecursionError, ValueError, TypeError, IndexError) as error:
        raise _unknown(text) from error


def _unknown(text: str) -> SerializeError:
    return SerializeError(f"[export.load] expected an expression of sizes, got {text[:200]!r}")


def _called(tree: Any) -> tuple[str, list[Any]]:
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise _unknown(ast.unparse(tree))
    return tree.func.id, tree.args


def _expr(tree: Any) -> Expr:
    if isinstance(tree, (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp)):
        return _plain_expr(tree, {})
    name, args = _called(tree)
    if name == "Symbol":
        return symbol(str(ast.literal_eval(args[0])), 0)
    if name == "Integer":
        return constant(int(ast.literal_eval(args[0])))
    parts = [_expr(arg) for arg in args]
    if name in ("Add", "Mul"):
        total = parts[0]
        for part in parts[1:]:
            total = total + part if name == "Add" else total * part
        return total
    if name == "Pow" and len(parts) == 2 and parts[1].is_constant and 0 <= parts[1].constant <= 16:
        return power(parts[0], parts[1].constant)
    if name in ("FloorDiv", "CleanDiv", "Mod", "PythonMod", "CeilDiv") and len(parts) == 2:
        if name == "CeilDiv":
            return -floordiv(-parts[0], parts[1])
        return (floordiv if name.endswith("Div") else modulo)(*parts)
    if name in ("Max", "Min") and parts:
        return (maximum if name == "Max" else minimum)(*parts)
    if name == "ModularIndexing" and len(parts) == 3:
        return modulo(floordiv(parts[0], parts[1]), parts[2])
    raise _unknown(ast.unparse(tree))


# ---------------------------------------------------------------------------------------------- conditions

_COMPARED: dict[type, Callable[[Expr, Expr], Condition]] = {
    ast.Eq: lambda a, b: conditions.eq(a - b),
    ast.NotEq: lambda a, b: conditions.ne(a - b),
    ast.GtE: lambda a, b: conditions.ge(a - b),
    ast.LtE: lambda a, b: conditions.ge(b - a),
    ast.Gt: lambda a, b: conditions.ge(a - b - 1),
    ast.Lt: lambda a, b: conditions.ge(b - a - 1),
}


def read_condition(text: str, sizes: Mapping[str, Expr]) -> Condition | None:
    """A condition over sizes of inputs, which are given by their own text; None where it is about something else."""
    try:
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
            return None
        left, right = (_plain_expr(side, sizes) for side in (tree.left, tree.comparators[0]))
        return _COMPARED[type(tree.ops[0])](left, right)
    except (SyntaxError, RecursionError, KeyError, SerializeError):
        return None


_BINARY: dict[type, Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
    ast.Mod: modulo,
}


def _plain_expr(tree: Any, sizes: Mapping[str, Expr]) -> Expr:
    """An expression in Python's own operators."""
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return constant(tree.value)
    if isinstance(tree, ast.BinOp) and type(tree.op) in _BINARY:
        return _BINARY[type(tree.op)](_plain_expr(tree.left, sizes), _plain_expr(tree.right, sizes))
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_plain_expr(tree.operand, sizes)
    text = ast.unparse(tree)
    if text in sizes:
        return sizes[text]
    if isinstance(tree, ast.Name):
        return symbol(tree.id, 0)
    raise _unknown(text)
