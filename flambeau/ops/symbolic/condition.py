"""Conditions on integer expressions: `e == 0`, `e != 0`, `e >= 0`, and their conjunctions and disjunctions.

Like expressions, conditions are canonical and interned: common factors are divided out, an equation has one sign, and
strict comparisons of integers are written with `>=`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from flambeau.ops.symbolic.expr import (
    Atom,
    Expr,
    Number,
    _content,
    _intern,
    bounds,
    constant,
    evaluate,
    scale,
    substitute,
)


class Condition:
    """A condition. `kind` is "eq", "ne" or "ge" with an expression that is compared with zero, or "and" or "or"."""

    __slots__ = ("kind", "expr", "parts")

    kind: str
    expr: Expr
    parts: tuple[Condition, ...]

    def __repr__(self) -> str:
        from flambeau.ops.symbolic.printing import python_condition

        return python_condition(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.kind, self.expr, self.parts)

    @property
    def symbols(self) -> frozenset[Atom]:
        if self.kind in ("and", "or"):
            return frozenset().union(*(part.symbols for part in self.parts))
        return self.expr.symbols

    def holds(self, values: dict[Atom, int]) -> bool:
        """Whether the condition is true for given values of its symbols."""
        if self.kind == "and":
            return all(part.holds(values) for part in self.parts)
        if self.kind == "or":
            return any(part.holds(values) for part in self.parts)
        value = evaluate(self.expr, values)
        return value == 0 if self.kind == "eq" else (value != 0 if self.kind == "ne" else value >= 0)

    def comparison(self) -> tuple[Callable[[Any, Any], Any], Expr, int]:
        """A comparison as its operator, an expression without a constant, and the number that it is compared with."""
        rest = self.expr.constant
        expr = self.expr - rest
        if self.kind == "ge" and all(factor < 0 for factor in expr.terms.values()):
            return operator.le, scale(expr, -1), rest
        return {"eq": operator.eq, "ne": operator.ne, "ge": operator.ge}[self.kind], expr, -rest

    def negated(self) -> Condition:
        if self.kind == "and":
            return disjunction(*(part.negated() for part in self.parts))
        if self.kind == "or":
            return conjunction(*(part.negated() for part in self.parts))
        if self.kind == "ge":
            return ge(scale(self.expr, -1) - 1)
        return _make("ne" if self.kind == "eq" else "eq", self.expr)

    def decided(self, known: dict[Atom, tuple[Number, Number]] | None = None) -> bool | None:
        """True or False when bounds of the symbols are enough to tell."""
        if self.kind in ("and", "or"):
            answers = [part.decided(known) for part in self.parts]
            last = self.kind == "or"
            if last in answers:
                return last
            return None if None in answers else not last
        low, high = bounds(self.expr, known)
        if self.kind == "ge":
            return True if low >= 0 else (False if high < 0 else None)
        differs = low > 0 or high < 0 or self._indivisible()
        if differs:
            return self.kind == "ne"
        if low == high == 0:
            return self.kind == "eq"
        return None

    def _indivisible(self) -> bool:
        """Whether 2a + 4b + 3 and the like cannot be zero."""
        rest = self.expr.constant
        factor = _content(self.expr - rest)
        return factor > 1 and rest % factor != 0

    def substituted(self, table: dict[Atom, Expr]) -> Condition:
        if self.kind == "and":
            return conjunction(*(part.substituted(table) for part in self.parts))
        if self.kind == "or":
            return disjunction(*(part.substituted(table) for part in self.parts))
        expr = substitute(self.expr, table)
        return self if expr is self.expr else COMPARISONS[self.kind](expr)


_CONDITIONS: dict[tuple[Any, ...], Condition] = {}
_ZERO = constant(0)


def _make(kind: str, expr: Expr = _ZERO, parts: tuple[Condition, ...] = ()) -> Condition:
    key = (kind, expr, parts)
    condition = _CONDITIONS.get(key)
    if condition is None:
        condition = _CONDITIONS[key] = Condition.__new__(Condition)
        condition.kind, condition.expr, condition.parts = kind, expr, parts
    return condition


def _reduced(e: Expr) -> Expr:
    factor = _content(e)
    if factor > 1:
        e = _intern({m: v // factor for m, v in e.terms.items()})
    return e


def eq(e: Expr) -> Condition:
    """e == 0"""
    e = _reduced(e)
    first = min((m for m in e.terms if m), key=lambda m: [a.number for a in m], default=())
    return _make("eq", scale(e, -1) if e.terms.get(first, 0) < 0 else e)


def ne(e: Expr) -> Condition:
    """e != 0"""
    return _make("ne", eq(e).expr)


def ge(e: Expr) -> Condition:
    """e >= 0"""
    rest = e.constant
    factor = _content(e - rest)
    if factor > 1:  # 2a + 3 >= 0 is a + 1 >= 0
        e = _intern({m: v // factor for m, v in (e - rest).terms.items()}) + rest // factor
    return _make("ge", e)


COMPARISONS = {"eq": eq, "ne": ne, "ge": ge}


def conjunction(*parts: Condition) -> Condition:
    return _combined("and", parts)


def disjunction(*parts: Condition) -> Condition:
    return _combined("or", parts)


def _combined(kind: str, parts: tuple[Condition, ...]) -> Condition:
    flat: dict[Condition, None] = {}
    for part in parts:
        for piece in part.parts if part.kind == kind else (part,):
            flat[piece] = None
    undecided = [part for part in flat if part.decided() is not (kind == "and")]
    if len(undecided) == 1:
        return undecided[0]
    return _make(kind, _ZERO, tuple(undecided))
