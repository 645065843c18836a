"""What a program assumed of sizes against what was promised: the message, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from flambeau._dynamo.exc import UserError
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Atom, Number, single_symbol, split_remainders, symbol
from flambeau.ops.symbolic.printing import python_condition, python_text


class Violations:
    """Conditions that do not hold for all sizes that were promised, and the Dims for which they would."""

    def __init__(
        self, names: Mapping[Atom, str], places: Mapping[Atom, str], ranges: Mapping[Atom, tuple[Number, Number]]
    ) -> None:
        self.names = names
        self.places = places
        self.bounds = {names[atom]: ranges.get(atom, (0, inf)) for atom in names}
        self.lines: dict[str, str] = {}  # what is wrong, and with which size
        self.fixes: dict[str, str] = {}

    def add(self, condition: Condition, location: str) -> None:
        symbols = sorted(condition.symbols, key=list(self.names).index)
        last = self.names[symbols[-1]]
        if condition.kind == "eq" and len(symbols) == 1 and single_symbol(condition.expr - condition.expr.constant):
            self.specialized(last, -condition.expr.constant, location)
            return
        text = python_condition(condition, self._name)
        equal = condition.kind == "eq" and self._equal(condition, symbols)
        if equal:
            line = f"The values of {' and '.join(map(self._place, reversed(symbols)))} must always "
            line += "be equal" if equal == "same" else f"satisfy {text}"
        else:
            where = f"{self._place(symbols[-1])} in its range"
            line = f"Not all values of {where} satisfy the generated guard {text}"
            if len(symbols) == 1:
                self._bound(condition, symbols[0])
        self.lines.setdefault(f"{line} ({location}).", last)

    def specialized(self, name: str, value: int, location: str) -> None:
        self.lines.setdefault(
            f"You marked {name} as dynamic but your code specialized it to be a constant ({value}). If you're using Dim.DYNAMIC, replace "
            f"it with either Dim.STATIC or Dim.AUTO ({location}).",
            name,
        )
        self.fixes[name] = str(value)

    def _name(self, atom: Atom) -> str:
        return self.names.get(atom, atom.name)

    def _place(self, atom: Atom) -> str:
        return f"{self._name(atom)} = {self.places[atom]}" if atom in self.places else self._name(atom)

    def _equal(self, condition: Condition, symbols: list[Atom]) -> str:
        """Solves an equation for the last size that it has with the factor 1."""
        remainders, rest = split_remainders(condition.expr)
        if remainders or any(len(monomial) > 1 for monomial in rest.terms) or len(symbols) < 2:
            return ""
        for atom in reversed(symbols):
            factor = rest.terms.get((atom,))
            if factor in (1, -1) and len(symbols) == 2:
                others = (rest - symbol(atom.name, atom.lower) * int(factor)) * -int(factor)
                self.fixes[self._name(atom)] = python_text(others, self._name)
                return "same" if single_symbol(others) is not None else "solved"
        return "unsolved"

    def _bound(self, condition: Condition, atom: Atom) -> None:
        """Narrows a size to the values for which a condition on it alone holds, where these are an interval or multiples."""
        name = self._name(atom)
        remainders, rest = split_remainders(condition.expr)
        if condition.kind == "eq" and len(remainders) == 1 and rest.is_constant and not rest.constant:
            _, of, by = remainders[0]
            if single_symbol(of) is atom and by.is_constant:
                self.fixes[name] = f"{by.constant}*_{name}"
            return
        factor = condition.expr.terms.get((atom,))
        if condition.kind != "ge" or not factor or remainders or len(condition.expr.terms) > 2:
            return
        low, high = self.bounds[name]
        constant = condition.expr.constant
        if factor > 0:
            low = max(low, -(constant // factor))
        else:
            high = min(high, constant // -factor)
        self.bounds[name] = low, high
        span = [f"{word}={value}" for word, value, no in (("min", low, 0), ("max", high, inf)) if value != no]
        self.fixes[name] = f"Dim('{name}', {', '.join(span)})"

    def error(self) -> UserError:
        lines = sorted(self.lines, key=lambda line: (self.lines[line], line))
        text = "".join(f"\n  - {line}" for line in lines)
        order = [*self.bounds, *self.fixes]
        fixes = "".join(f"\n  {name} = {self.fixes[name]}" for name in dict.fromkeys(order) if name in self.fixes)
        names = ", ".join(sorted(set(self.lines.values())))
        return UserError(f"[export] Constraints violated ({names})!{text}" + (fixes and f"\n\nSuggested fixes:{fixes}"))
