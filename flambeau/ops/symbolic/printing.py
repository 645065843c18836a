"""Expressions and conditions as Python."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Expr, Monomial, single_symbol, split_remainders

Names = Callable[[Atom], str]


def _own_name(atom: Atom) -> str:
    return atom.name


class Printer:
    """Prints Python. `name` says what a symbol is called."""

    def __init__(self, name: Names = _own_name) -> None:
        self.name = name

    def text(self, e: Expr, nested: bool = False) -> str:
        """An expression; in brackets when it is a sum inside another expression."""
        remainders, rest = split_remainders(e)
        parts = [self._signed(factor, [self.remainder(a, b)]) for factor, a, b in remainders]
        ordered = sorted(rest.terms.items(), key=lambda item: (-len(item[0]), [a.number for a in item[0]]))
        parts += [self._term(monomial, value) for monomial, value in ordered]
        if not parts:
            return "0"
        # A sum starts with something positive where there is one.
        parts.sort(key=lambda part: part[0] == "-")
        sign, first = parts[0]
        text = f"-{first}" if sign == "-" else first
        text += "".join(f" {s} {p}" for s, p in parts[1:])
        if nested and single_symbol(e) is None and (len(parts) > 1 or sign == "-" or not _is_simple(text)):
            return f"({text})"
        return text

    def _term(self, monomial: Monomial, value: int) -> tuple[str, str]:
        factors: list[str] = []
        for atom in dict.fromkeys(monomial):
            count = monomial.count(atom)
            factors.append(f"{self.atom(atom)}**{count}" if count > 1 else self.atom(atom))
        return self._signed(value, factors)

    def _signed(self, value: int, factors: list[str]) -> tuple[str, str]:
        size = abs(value)
        texts = factors if size == 1 and factors else [str(size), *factors]
        return ("-" if value < 0 else "+"), " * ".join(texts)

    def atom(self, atom: Atom) -> str:
        if atom.kind == "symbol":
            return self.name(atom)
        if atom.kind == "floordiv":
            a, b = atom.args
            return f"({self.text(a, True)} // {self.text(b, True)})"
        return f"{atom.kind}({', '.join(self.text(arg) for arg in atom.args)})"

    def remainder(self, a: Expr, b: Expr) -> str:
        return f"({self.text(a, True)} % {self.text(b, True)})"

    def condition(self, c: Condition) -> str:
        """A condition, with what is negative on the other side."""
        if c.kind in ("and", "or"):
            joined = f" {c.kind} ".join(f"({self.condition(part)})" for part in c.parts)
            return joined or ("True" if c.kind == "and" else "False")
        e = c.expr
        if e.is_constant:
            return str(c.holds({}))
        remainders, rest = split_remainders(e)
        left: Expr = e
        right: Expr | None = None
        if not remainders:
            left, right = _sides(e)
        elif rest.is_constant:
            left, right = e - rest, -rest
        sign = {"eq": "==", "ne": "!=", "ge": ">="}[c.kind]
        if right is not None and c.kind == "ge" and left.is_constant:
            return f"{self.text(right)} <= {self.text(left)}"
        if right is not None and c.kind == "ge" and right.constant < 0 and not right.is_constant:
            return f"{self.text(left)} {sign} {self.text(right)}"
        if right is not None and c.kind == "ge" and right.constant == 1 and not right.is_constant:
            return f"{self.text(left)} > {self.text(right - 1)}"
        if right is not None and c.kind == "ge" and left.constant == -1 and not left.is_constant:
            return f"{self.text(right)} < {self.text(left + 1)}"
        return f"{self.text(left)} {sign} {self.text(right) if right is not None else '0'}"


def _sides(e: Expr) -> tuple[Expr, Expr]:
    """Positive terms and the negated negative ones."""
    from flambeau.ops.symbolic.expr import _intern

    left = _intern({m: v for m, v in e.terms.items() if v > 0})
    right = _intern({m: -v for m, v in e.terms.items() if v < 0})
    return left, right


def _is_simple(text: str) -> bool:
    return text.isalnum() or text.isidentifier() or (text.startswith("(") and text.endswith(")") and " * " not in text)


_PYTHON = Printer()


def python_text(e: Expr, name: Names = _own_name) -> str:
    return (_PYTHON if name is _own_name else Printer(name)).text(e)


def python_condition(c: Condition, name: Names = _own_name) -> str:
    return (_PYTHON if name is _own_name else Printer(name)).condition(c)
