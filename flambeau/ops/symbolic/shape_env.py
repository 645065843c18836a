"""ShapeEnv: the symbols of one trace, what is known of them, and the guards under which the trace holds.

`create_symbol` makes a symbol for a size with its hint. Conditions that Python must know are answered at the hints by
`evaluate`; unless the answer follows from what is known already, it becomes a guard, with the line of the user's program
that asked. Equalities unify symbols: after `s0 == s1` the two print and compare as one.

Unbacked symbols stand for numbers that only the data decides. They have no hint, so no branch is taken on them; fakes have
a stand-in in their place. What is assumed of them is told to a listener, which puts a check into the graph.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, ClassVar, NamedTuple

from flambeau.ops.symbolic import condition as conditions
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import (
    Atom,
    Expr,
    Number,
    bounds,
    evaluate,
    floordiv,
    multiply,
    single_symbol,
    split_remainders,
    substitute,
    symbol,
)
from flambeau.ops.symbolic.numbers import SymBool, SymFloat, SymInt, wrap
from flambeau.ops.symbolic.printing import python_condition

_STAND_IN = 240  # a factor that many numbers divide, so that fakes may be divided into rows and halves
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class DataDependentOutput(RuntimeError):
    """A size or value that only the data decides was asked for while there is no data."""


class Guard(NamedTuple):
    """A condition that must hold for a trace to be used, and why it was assumed."""

    condition: Condition
    file: str
    line: int

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.line).strip()
        return f"{python_condition(self.condition)}  # {self.location}" + (f" `{code}`" if code else "")


class FloatGuard(NamedTuple):
    """A symbolic float that was needed as a number."""

    text: str
    value: float
    compute: Callable[[Any], float]
    file: str
    line: int


class ExampleRun:
    """What numbers that depend on data were in a run with the example, in the order in which they were read, and what was
    assumed because of it."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.assumed: list[Condition] = []

    def value(self, name: str) -> int | None:
        place = int(name[1:]) if name[1:].isdigit() else len(self.numbers)
        return self.numbers[place] if place < len(self.numbers) else None


class ShapeEnv:
    """Symbols and what is known of them."""

    example: ClassVar[ExampleRun | None] = None  # of a draft export

    def __init__(self, *, tracked_fakes: Any = None) -> None:
        self.tracked_fakes = tracked_fakes  # of programs that look at them; nothing is added
        self.hints: dict[Atom, int] = {}
        self.sources: dict[Atom, str] = {}
        self.guards: list[Guard] = []
        self.float_guards: list[FloatGuard] = []
        self.replacements: dict[Atom, Expr] = {}
        self.ranges: dict[Atom, tuple[Number, Number]] = {}
        self.divisors: dict[Atom, Expr] = {}  # s as 4 * (s // 4), for a symbol s that 4 is known to divide
        self._facts: set[Condition] = set()
        self._symbols: list[Atom] = []
        self.stand_ins: dict[Atom, int] = {}  # of unbacked symbols: the number that fakes have in their place
        self._floats = 0
        self.listener: Callable[[Condition], None] | None = None  # told what was assumed of unbacked symbols
        self.oblivious = False  # shape rules ask: no size that depends on data is 0 or 1
        self.frozen = False
        self.where: Callable[[], tuple[str, int]] = user_line  # file and line of the program that asks

    # ------------------------------------------------------------------------------------------ symbols

    def create_symbol(
        self, hint: int, source: str = "", *, lower: Number = 0, upper: Number = inf, name: str | None = None
    ) -> SymInt:
        """A symbol for a size (or an integer, with lower=-inf) that is `hint` in the example."""
        new_symbol = symbol(name or f"s{len(self._symbols)}", lower)
        atom = single_symbol(new_symbol)
        assert atom is not None
        self._symbols.append(atom)
        self.hints[atom] = hint
        self.sources[atom] = source or atom.name
        self.ranges[atom] = (lower, upper)
        return SymInt(new_symbol, self, hint)

    def create_unbacked(self, lower: Number = 0, upper: Number = inf) -> SymInt:
        """A symbol for a number that only the data decides: it has no hint, and asking for its value raises."""
        new_symbol = symbol(f"u{len(self.stand_ins)}", lower)
        atom = single_symbol(new_symbol)
        assert atom is not None
        self.ranges[atom] = (lower, upper)
        self.note_unbacked(atom)
        return SymInt(new_symbol, self, None)

    def note_unbacked(self, atom: Atom) -> None:
        """Takes a symbol for one that depends on data."""
        known = None if ShapeEnv.example is None else ShapeEnv.example.value(atom.name)
        self.stand_ins[atom] = known if known is not None and known > 1 else _STAND_IN * (2 * len(self.stand_ins) + 11)

    def forget_unbacked(self) -> None:
        """Forgets what depends on data, so that a program may be run once more with the same names."""
        gone = self.stand_ins.keys()
        self._facts = {fact for fact in self._facts if gone.isdisjoint(fact.symbols)}
        self.replacements = {a: e for a, e in self.replacements.items() if a not in gone and gone.isdisjoint(e.symbols)}
        self.ranges = {atom: span for atom, span in self.ranges.items() if atom not in gone}
        self.stand_ins = {}
        self._floats = 0

    create_unbacked_symint = create_unbacked

    @property
    def symbols(self) -> list[Atom]:
        """The symbols with hints, as they were made."""
        return list(self._symbols)

    def unbacked_ranges(self) -> dict[Atom, tuple[Number, Number]]:
        """Least and greatest value of each number that depends on data."""
        return {atom: self.ranges[atom] for atom in self.stand_ins if atom not in self.replacements}

    def count_float(self) -> int:
        """The number of a new symbolic float that depends on data."""
        self._floats += 1
        return self._floats - 1

    def is_unbacked(self, value: Any) -> bool:
        """Whether a number depends on data."""
        return (
            bool(self.stand_ins)
            and type(value) is SymInt
            and not self.stand_ins.keys().isdisjoint(self.simplify(value.expr).symbols)
        )

    def stand_in(self, value: SymInt | SymBool | SymFloat) -> Any:
        """The number that fakes have in the place of one that depends on data."""
        values = {**self.hints, **self.stand_ins}
        if type(value) is SymInt:
            expr = self.simplify(value.expr)
            if expr.symbols <= values.keys():
                return evaluate(expr, values)
        elif type(value) is SymFloat:
            return 1.5  # operators look at the type of a float only
        elif type(value) is SymBool:
            condition = value.condition.substituted(self.replacements)
            if condition.symbols <= values.keys():
                return condition.holds(values)
        raise DataDependentOutput(f"[symbolic] expected a number that is known, got {value}, which depends on data")

    # ------------------------------------------------------------------------------------------ questions

    def simplify(self, e: Expr) -> Expr:
        """The expression with symbols replaced by what they were found equal to."""
        return substitute(e, self.replacements)

    def simplified(self, value: Any) -> Any:
        """A number with symbols replaced by what they were found equal to."""
        if type(value) is not SymInt:
            return value
        expr = substitute(value.expr, self.replacements)
        return value if expr is value.expr else wrap(expr, self, value.hint)

    def same(self, a: Expr, b: Expr) -> bool:
        """Whether two expressions are equal by what is known; asks for no guard."""
        a, b = self.simplify(a), self.simplify(b)
        return a is b or (bool(self.divisors) and substitute(a, self.divisors) is substitute(b, self.divisors))

    def bounds(self, e: Expr) -> tuple[Number, Number]:
        """Least and greatest value an expression can have, from what is known."""
        return bounds(self.simplify(e), self.ranges)

    def statically_known(self, condition: Condition) -> bool | None:
        """Whether a condition follows from what is known; None when it may hold or not. Records nothing."""
        condition = condition.substituted(self.replacements)
        if condition in self._facts:
            return True
        answer = condition.decided(self.ranges)
        if answer is None and self.divisors:
            answer = condition.substituted(self.divisors).decided(self.ranges)
        if answer is None:
            opposite = condition.negated()
            if opposite in self._facts:
                return False
            if condition.kind == "ge":
                answer = self._implied(condition)
            elif condition.kind in ("eq", "ne"):
                apart = conditions.ne(condition.expr) in self._facts
                below, above = conditions.ge(condition.expr - 1), conditions.ge(-condition.expr - 1)
                if apart or self._implied(below) or self._implied(above):
                    answer = condition.kind == "ne"
        return answer

    def _implied(self, condition: Condition) -> bool | None:
        """Whether e >= 0 follows from a fact e - n >= 0."""
        if condition in self._facts:
            return True
        for fact in self._facts:
            if fact.kind == "ge":
                gap = condition.expr - fact.expr
                if gap.is_constant and gap.constant >= 0:
                    return True
        return None

    def evaluate(self, condition: Condition, hint: bool | None = None) -> bool:
        """The truth of a condition at the hints; a guard unless it follows from what is known."""
        answer = self.statically_known(condition)
        if answer is not None:
            return answer
        if hint is None:
            condition = condition.substituted(self.replacements)
            if not condition.symbols <= self.hints.keys():
                answer = self._for_most_sizes(condition) if self.oblivious else None
                if answer is None:
                    answer = self._as_in_example(condition)
                if answer is not None:
                    return answer
                raise DataDependentOutput(
                    f"[symbolic] expected a condition on known sizes, got {condition}, which depends on data"
                    f"{_described(*user_line())}; state what holds with torch._check, or avoid the branch: Could not guard on "
                    f"data-dependent expression {condition}"
                )
            hint = condition.holds(self.hints)
        self.add_guard(condition if hint else condition.negated())
        return hint

    def _as_in_example(self, condition: Condition) -> bool | None:
        """The truth of a condition on data in the example run that is at hand, which is assumed from now on."""
        if ShapeEnv.example is None:
            return None
        values = dict(self.hints)
        for atom in condition.symbols & self.stand_ins.keys():
            value = ShapeEnv.example.value(atom.name)
            if value is None:
                return None
            values[atom] = value
        answer = condition.holds(values)
        ShapeEnv.example.assumed.append(condition if answer else condition.negated())
        self.assume(SymBool(ShapeEnv.example.assumed[-1], self, None))
        return answer

    def _for_most_sizes(self, condition: Condition) -> bool | None:
        """The truth of a condition where no size that depends on data is 0 or 1; None when that does not tell."""
        ranges = dict(self.ranges)
        for atom in self.stand_ins:
            low, high = self.ranges[atom]
            if low >= 0 and high >= 2:
                ranges[atom] = (max(low, 2), high)
        return condition.substituted(self.replacements).decided(ranges)

    def specialize(self, value: SymInt) -> int:
        """The value as a plain number, assumed from now on."""
        if value.hint is None:
            low, high = self.bounds(value.expr)
            if low == high:
                return int(low)
            simplified = self.simplify(value.expr)
            if simplified.is_constant:
                return simplified.constant
            raise DataDependentOutput(
                f"[symbolic] expected a number that is known, got {value}, which depends on data{_described(*user_line())}"
            )
        self.evaluate(conditions.eq(value.expr - value.hint), True)
        return value.hint

    def specialize_float(self, value: SymFloat) -> float:
        if value.hint is None:
            raise DataDependentOutput(f"[symbolic] expected a number that is known, got {value}, which depends on data")
        if all(guard.text != value.text for guard in self.float_guards):
            file, line = user_line()
            self.float_guards.append(FloatGuard(value.text, value.hint, value.compute, file, line))
        return value.hint

    # ------------------------------------------------------------------------------------------ facts

    def add_guard(self, condition: Condition) -> None:
        """Assume a condition, as a guard."""
        if self.frozen:
            raise RuntimeError(
                f"[ShapeEnv] expected no new guards after freezing, got {condition}{_described(*user_line())}"
            )
        self.guards.append(Guard(condition, *self.where()))
        self.learn(condition)

    def check(self, value: Any, message: str = "") -> None:
        """Assume what the user says holds (torch._check): a guard for sizes, a fact for what depends on data."""
        if not isinstance(value, SymBool):
            if not value:
                raise RuntimeError(message or "[check] expected a condition that holds, got a false one")
            return
        if value.hint is None:
            if not self.assume(value):
                raise RuntimeError(message or f"[check] expected {value} to hold, got a condition that cannot")
        elif not bool(value):
            raise RuntimeError(message or f"[check] expected {value} to hold, got a false condition")

    def assume(self, value: SymBool) -> bool:
        """Assume a condition on what depends on data; it is checked when the graph runs. False if it cannot hold."""
        answer = self.statically_known(value.condition)
        if answer is not None:
            return answer
        condition = value.condition.substituted(self.replacements)
        if condition.symbols <= self.hints.keys():
            return self.evaluate(condition)
        if self.listener is not None:
            self.listener(condition)  # in terms of the symbols before they are unified
        self.learn(condition)
        return True

    def learn(self, condition: Condition) -> None:
        """Take note of a condition that holds."""
        condition = condition.substituted(self.replacements)
        if condition.kind == "and":
            for part in condition.parts:
                self.learn(part)
            return
        self._facts.add(condition)
        if condition.kind == "eq":
            self._note_divisor(condition.expr)
            self._unify(condition.expr)
        elif condition.kind == "ge":
            self._narrow(condition.expr)
        elif condition.kind == "ne":
            self._exclude(condition.expr)

    def _note_divisor(self, e: Expr) -> None:
        """From s % d == 0, that s is d * (s // d)."""
        remainders, rest = split_remainders(e)
        if len(remainders) == 1 and not rest.terms:
            _, a, b = remainders[0]
            atom = single_symbol(a)
            if atom is not None and atom not in b.symbols:
                self.divisors[atom] = multiply(b, floordiv(a, b))

    def _unify(self, e: Expr) -> None:
        """From e == 0, express the newest symbol that stands alone by the others. A sum of several that depend on data stays
        what it is: the difference of stand-ins is none."""
        if len(e.terms) > 2 and len(self.stand_ins.keys() & e.symbols) > 1:
            return
        for atom in sorted(e.symbols, key=lambda a: (a not in self.stand_ins, -a.number)):
            factor = e.terms.get((atom,))
            if factor not in (1, -1) or sum(atom in m for m in e.terms) != 1 or _hidden(e, atom):
                continue
            one = symbol(atom.name, atom.lower)
            other = (one - e) if factor == 1 else (one + e)
            self.replacements = {a: substitute(x, {atom: other}) for a, x in self.replacements.items()}
            self.replacements[atom] = other
            low, high = self.ranges.get(atom, (atom.lower, inf))
            facts, self._facts = self._facts, set()
            for fact in facts:
                replaced = fact.substituted({atom: other})
                if replaced.decided() is None:
                    self._facts.add(replaced)
            for bound in (conditions.ge(other - int(low)) if low > -inf else None,
                          conditions.ge(-other + int(high)) if high < inf else None):  # fmt: skip
                if bound is not None and bound.decided() is None:
                    self.learn(bound)
            return

    def _narrow(self, e: Expr) -> None:
        """From e >= 0 with one symbol in it, a bound of the symbol."""
        rest = e - e.constant
        if len(rest.terms) != 1:
            return
        ((monomial, factor),) = rest.terms.items()
        if len(monomial) != 1 or monomial[0].kind != "symbol":
            return
        atom = monomial[0]
        low, high = self.ranges.get(atom, (atom.lower, inf))
        if factor > 0:
            low = max(low, -(e.constant // factor))
        else:
            high = min(high, e.constant // -factor)
        self.ranges[atom] = (low, high)

    def _exclude(self, e: Expr) -> None:
        """From e != 0, a tighter bound when the excluded value is the end of a symbol's range."""
        rest = e - e.constant
        if len(rest.terms) != 1:
            return
        ((monomial, factor),) = rest.terms.items()
        if len(monomial) != 1 or monomial[0].kind != "symbol" or e.constant % factor:
            return
        atom, value = monomial[0], -e.constant // factor
        low, high = self.ranges.get(atom, (atom.lower, inf))
        self.ranges[atom] = (low + 1 if low == value else low, high - 1 if high == value else high)

    def freeze(self) -> None:
        """From now on, a condition that would need a new guard raises."""
        self.frozen = True

    # ------------------------------------------------------------------------------------------ guards

    def holds(self, values: Mapping[Atom, int]) -> bool:
        """Whether sizes, by symbol, satisfy all guards."""
        table = dict(values)
        return all(guard.condition.holds(table) for guard in self.guards) and all(
            guard.compute(table) == guard.value for guard in self.float_guards
        )

    def guard_texts(self, names: Mapping[Atom, str] | None = None) -> list[str]:
        """The guards as Python, with symbols by their sources or the given names."""
        table = self.sources if names is None else names
        texts = [python_condition(guard.condition, lambda atom: table.get(atom, atom.name)) for guard in self.guards]
        texts += [f"{guard.text} == {guard.value}" for guard in self.float_guards]
        return list(dict.fromkeys(texts))

    def produce_guards(self, *args: Any, **kwargs: Any) -> list[str]:
        return self.guard_texts()

    def explain(self) -> str:
        """All guards with the lines that caused them, for people to read."""
        return "\n".join(str(guard) for guard in self.guards)

    def sym_int(self, e: Expr) -> Any:
        """An expression as a value of this environment."""
        known = e.symbols <= self.hints.keys()
        return wrap(e, self, evaluate(e, self.hints) if known else None)

    def size_hint(self, e: Expr, fallback: int | None = None) -> int:
        """The number an expression is at the hints."""
        e = self.simplify(e)
        if e.symbols <= self.hints.keys():
            return evaluate(e, self.hints)
        if fallback is None:
            raise DataDependentOutput(f"[symbolic] expected an expression of known sizes, got {e}")
        return fallback


def _hidden(e: Expr, atom: Atom) -> bool:
    """Whether a symbol also occurs inside a division, minimum or maximum."""
    return any(
        atom in arg.symbols for monomial in e.terms for part in monomial if part.kind != "symbol" for arg in part.args
    )


def user_line() -> tuple[str, int]:
    """File and line of the innermost frame that is not the library's."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE) and not name.startswith("<"):
            return name, frame.f_lineno
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "<unknown>", 0


def _described(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f" at {file}:{line}" + (f": `{text}`" if text else "")
