"""Symbolic integers for shapes: canonical expressions, conditions, the values that carry them, and their guards."""

from __future__ import annotations

from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import (
    Atom,
    Expr,
    constant,
    evaluate,
    floordiv,
    maximum,
    minimum,
    modulo,
    substitute,
    symbol,
)
from flambeau.ops.symbolic.numbers import (
    SymBool,
    SymFloat,
    SymInt,
    expr_of,
    hint_of,
    sym_float,
    sym_int,
    sym_ite,
    sym_max,
    sym_min,
    sym_not,
    sym_sqrt,
    sym_sum,
    wrap,
)
from flambeau.ops.symbolic.printing import python_condition, python_text
from flambeau.ops.symbolic.shape_env import DataDependentOutput, Guard, ShapeEnv, user_line

__all__ = [
    "Atom", "Condition", "DataDependentOutput", "Expr", "Guard", "ShapeEnv", "SymBool", "SymFloat", "SymInt",
    "constant", "evaluate", "expr_of", "floordiv", "hint_of", "maximum", "minimum", "modulo",
    "python_condition", "python_text", "substitute", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not",
    "sym_sqrt", "sym_sum", "symbol", "user_line", "wrap",
]  # fmt: skip
