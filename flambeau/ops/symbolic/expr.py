"""Integer expressions over symbols, in a canonical form: equal expressions are one object.

An expression is a polynomial with integer coefficients over atoms. Atoms are symbols, floor divisions, minima and
maxima of expressions. A remainder is written by what defines it, `a % b = a - b * (a // b)`, so that quotient and
remainder cancel by themselves; printers and ranges recognise the form again. Expressions are interned: comparison is
identity, hashing is an address, and products and quotients are remembered.

Divisors are taken to be nonzero. Symbols are known to be at least `lower`; nothing else is assumed of them: 0 and 1 are
sizes like others.
"""

from __future__ import annotations

from math import gcd, inf, lcm
from typing import Any, Union

Number = Union[int, float]  # an int, or an infinity as the end of a range
Monomial = tuple["Atom", ...]  # atoms sorted by number, repeated for powers


class Atom:
    """What polynomials are made of. `kind` is "symbol", "floordiv", "min" or "max"."""

    __slots__ = ("number", "kind", "args", "name", "lower", "key")

    def __init__(self, kind: str, args: tuple[Expr, ...], name: str, lower: Number) -> None:
        self.number = len(_ATOMS)
        self.key = _scrambled(self.number)
        self.kind = kind
        self.args = args
        self.name = name
        self.lower = lower

    def __lt__(self, other: Atom) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        return self.name or f"{self.kind}({', '.join(map(str, self.args))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _atom, (self.kind, self.args, self.name, self.lower)


class Expr:
    """A polynomial. `terms` maps monomials to coefficients; the constant's monomial is ()."""

    __slots__ = ("number", "key", "terms", "is_constant", "_range", "_symbols")

    number: int
    key: int  # the value of the polynomial where each atom is its key, modulo a power of two
    terms: dict[Monomial, int]
    is_constant: bool
    _range: tuple[Number, Number] | None
    _symbols: frozenset[Atom] | None

    def __repr__(self) -> str:
        from flambeau.ops.symbolic.printing import python_text

        return python_text(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_items, (tuple(self.terms.items()),)

    # ------------------------------------------------------------------------------------------ questions

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def symbols(self) -> frozenset[Atom]:
        """The symbols that occur anywhere in the expression."""
        if self._symbols is None:
            symbols: set[Atom] = set()
            for monomial in self.terms:
                for atom in monomial:
                    if atom.kind == "symbol":
                        symbols.add(atom)
                    else:
                        for arg in atom.args:
                            symbols |= arg.symbols
            self._symbols = frozenset(symbols)
        return self._symbols

    @property
    def free_symbols(self) -> frozenset[Atom]:
        return self.symbols

    # ------------------------------------------------------------------------------------------ arithmetic

    def __add__(self, other: Expr | int) -> Expr:
        return add(self, other if type(other) is Expr else constant(other))  # type: ignore[arg-type]

    def __sub__(self, other: Expr | int) -> Expr:
        return subtract(self, other if type(other) is Expr else constant(other))  # type: ignore[arg-type]

    def __mul__(self, other: Expr | int) -> Expr:
        return multiply(self, other if type(other) is Expr else constant(other))  # type: ignore[arg-type]

    def __floordiv__(self, other: Expr | int) -> Expr:
        return floordiv(self, other if type(other) is Expr else constant(other))  # type: ignore[arg-type]

    def __mod__(self, other: Expr | int) -> Expr:
        return modulo(self, other if type(other) is Expr else constant(other))  # type: ignore[arg-type]

    def __neg__(self) -> Expr:
        return scale(self, -1)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: int) -> Expr:
        return subtract(constant(other), self)


# ---------------------------------------------------------------------------------------------- interning

# Tables live as long as the process, and tracing makes entries by the thousand: keys are plain integers, which cost the
# garbage collector nothing. The key of a sum or product follows from the keys of its operands, so that finding out
# whether an expression exists does not need a hash of its terms; equal keys are only a reason to compare them.
_MASK = (1 << 60) - 1
_ATOMS: dict[tuple[Any, ...], Atom] = {}
_EXPRS: dict[int, Expr] = {}  # by key, or the next number that is free
_CONSTANTS: dict[int, Expr] = {}
_PRODUCTS: dict[int, Expr] = {}  # by the numbers of both operands
_QUOTIENTS: dict[int, Expr] = {}
_MONOMIALS: dict[Monomial, dict[Monomial, Monomial]] = {}  # products of two


def _scrambled(number: int) -> int:
    """A number that looks random, odd, the same in every process."""
    number = (number + 1) * 0x9E3779B97F4A7C15
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9
    return (number ^ number >> 27) & _MASK | 1


def _keyed(key: int, terms: dict[Monomial, int]) -> Expr:
    """The one expression with these terms, none of which is zero, and the key that follows from them."""
    expr = _EXPRS.get(key)
    place = key
    while expr is not None:
        if expr.terms == terms:
            return expr
        place += 1
        expr = _EXPRS.get(place)
    expr = _new(Expr)
    expr.number = len(_EXPRS)
    expr.key = key
    expr.terms = terms
    expr.is_constant = not terms or (len(terms) == 1 and () in terms)
    expr._range = None
    expr._symbols = None
    _EXPRS[place] = expr
    return expr


def _intern(terms: dict[Monomial, int]) -> Expr:
    """The one expression with these terms, none of which is zero."""
    key = 0
    for monomial, value in terms.items():
        for atom in monomial:
            value *= atom.key
        key += value
    return _keyed(key & _MASK, terms)


_new = object.__new__


def _from_items(items: tuple[tuple[Monomial, int], ...]) -> Expr:
    # Atoms may be numbered differently in another process.
    return _intern({tuple(sorted(monomial)): value for monomial, value in items})


def _atom(kind: str, args: tuple[Expr, ...], name: str = "", lower: Number = -inf) -> Atom:
    key = (kind, args, name, lower)
    atom = _ATOMS.get(key)
    if atom is None:
        atom = _ATOMS[key] = Atom(kind, args, name, lower)
    return atom


def constant(value: int) -> Expr:
    expr = _CONSTANTS.get(value)
    if expr is None:
        expr = _CONSTANTS[value] = _intern({(): value} if value else {})
    return expr


def symbol(name: str, lower: Number = 0) -> Expr:
    """A symbol for an integer that is at least `lower`; the same name and bound is the same symbol."""
    return _intern({(_atom("symbol", (), name, lower),): 1})


def single_symbol(e: Expr) -> Atom | None:
    """The symbol that an expression is, if it is nothing else."""
    if len(e.terms) == 1:
        ((monomial, value),) = e.terms.items()
        if value == 1 and len(monomial) == 1 and monomial[0].kind == "symbol":
            return monomial[0]
    return None


# ---------------------------------------------------------------------------------------------- operations


def add(a: Expr, b: Expr) -> Expr:
    terms = a.terms.copy()
    for monomial, value in b.terms.items():
        if monomial in terms:
            value += terms[monomial]
            if not value:
                del terms[monomial]
                continue
        terms[monomial] = value
    return _keyed(a.key + b.key & _MASK, terms)


def subtract(a: Expr, b: Expr) -> Expr:
    if a is b:
        return constant(0)
    terms = a.terms.copy()
    for monomial, value in b.terms.items():
        value = terms.get(monomial, 0) - value
        if value:
            terms[monomial] = value
        else:
            del terms[monomial]
    return _keyed(a.key - b.key & _MASK, terms)


def scale(a: Expr, factor: int) -> Expr:
    if factor == 1:
        return a
    return _keyed(a.key * factor & _MASK, {m: v * factor for m, v in a.terms.items()} if factor else {})


def multiply(a: Expr, b: Expr) -> Expr:
    if b.is_constant:
        return scale(a, b.terms.get((), 0))
    if a.is_constant:
        return scale(b, a.terms.get((), 0))
    place = a.number << 32 | b.number
    cached = _PRODUCTS.get(place)
    if cached is not None:
        return cached
    if len(a.terms) > len(b.terms):
        a, b = b, a
    terms: dict[Monomial, int] = {}
    for m, v in a.terms.items():
        products = _MONOMIALS.get(m)
        if products is None:
            products = _MONOMIALS[m] = {}
        for n, w in b.terms.items():
            product = products.get(n)
            if product is None:
                product = products[n] = tuple(sorted(m + n))
            if product in terms:
                total = v * w + terms[product]
                if not total:
                    del terms[product]
                    continue
                terms[product] = total
            else:
                terms[product] = v * w
    cached = _PRODUCTS[place] = _keyed(a.key * b.key & _MASK, terms)
    return cached


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial divided by another, or None when it does not divide."""
    if not divisor:
        return monomial
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _leading(e: Expr) -> Monomial:
    if len(e.terms) == 1:
        return next(iter(e.terms))
    return max(e.terms, key=lambda m: (len(m), tuple(a.number for a in m)))


def _divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Quotient and rest with a = quotient * b + rest, as much as divides term by term."""
    quotient, rest, left = constant(0), constant(0), a
    lead = _leading(b)
    factor = b.terms[lead]
    single = len(b.terms) == 1
    if single:
        taken: dict[Monomial, int] = {}
        remainder: dict[Monomial, int] = {}
        for monomial, value in a.terms.items():
            shared = _without(monomial, lead)
            if shared is None:
                remainder[monomial] = value
                continue
            # The constant's part is made positive; others keep their sign, which reads better.
            whole = value // factor if value >= 0 or not monomial else -(-value // factor)
            part = value - whole * factor
            if whole:
                taken[shared] = whole
            if part:
                remainder[monomial] = part
        return _intern(taken), _intern(remainder)
    while left.terms:
        monomial = _leading(left)
        value = left.terms[monomial]
        shared = _without(monomial, lead)
        if shared is None or value % factor:
            term = _intern({monomial: value})
            rest = add(rest, term)
            left = add(left, scale(term, -1))
            continue
        term = _intern({shared: value // factor})
        quotient = add(quotient, term)
        left = add(left, scale(multiply(term, b), -1))
    return quotient, rest


def _content(e: Expr) -> int:
    divisor = 0
    for value in e.terms.values():
        divisor = gcd(divisor, value)
    return divisor


def floordiv(a: Expr, b: Expr) -> Expr:
    """a // b, rounding down."""
    key = a.number << 32 | b.number
    quotient = _QUOTIENTS.get(key)
    if quotient is None:
        quotient = _QUOTIENTS[key] = _floordiv(a, b)
    return quotient


def _floordiv(a: Expr, b: Expr) -> Expr:
    if not b.terms:
        raise ZeroDivisionError("[symbolic] expected a divisor that is not zero, got 0")
    if b.is_constant and b.constant < 0:
        a, b = scale(a, -1), scale(b, -1)
    if b is constant(1):
        return a
    if a.is_constant and b.is_constant:
        return constant(a.constant // b.constant)
    if b.is_constant:
        ends = range_of(a)
        if -inf < ends[0] and ends[1] < inf and ends[0] // b.constant == ends[1] // b.constant:
            return constant(int(ends[0]) // b.constant)
        varying = a - a.constant
        if all(value < 0 for value in varying.terms.values()):  # rounding up, written as people write it
            return scale(floordiv(scale(a, -1) + (b.constant - 1), b), -1)
    # What divides is taken out of the quotient; what stays decides whether anything of it is left.
    whole, rest = _divide(a, b)
    if not rest.terms:
        return whole
    low, high = range_of(rest)
    divisor_low = range_of(b)[0]
    if low >= 0:
        if high < divisor_low:
            return whole
        if divisor_low > 0 and not b.is_constant and range_of(subtract(b, rest))[0] > 0:
            return whole
    common = gcd(_content(rest), _content(b))
    if common > 1:
        rest = _intern({m: v // common for m, v in rest.terms.items()})
        b = _intern({m: v // common for m, v in b.terms.items()})
        if b is constant(1):
            return add(whole, rest)
    shared = _common_atoms(rest, b)
    if shared:
        rest = _intern({_removed(m, shared): v for m, v in rest.terms.items()})
        b = _intern({_removed(m, shared): v for m, v in b.terms.items()})
        return add(whole, floordiv(rest, b))
    # (x // a) // b = x // (a * b) for positive divisors.
    if len(rest.terms) == 1 and divisor_low > 0:
        ((monomial, value),) = rest.terms.items()
        if value == 1 and len(monomial) == 1 and monomial[0].kind == "floordiv":
            inner, inner_divisor = monomial[0].args
            if range_of(inner_divisor)[0] > 0:
                return add(whole, floordiv(inner, multiply(inner_divisor, b)))
    return add(whole, _intern({(_atom("floordiv", (rest, b)),): 1}))


def _common_atoms(a: Expr, b: Expr) -> list[Atom]:
    """Atoms that every term of both has as a factor, if they are known to be positive."""
    common: list[Atom] | None = None
    for monomial in (*a.terms, *b.terms):
        if common is None:
            common = [atom for atom in monomial if _atom_range(atom)[0] > 0]
        else:
            left = list(monomial)
            shared = []
            for atom in common:
                if atom in left:
                    left.remove(atom)
                    shared.append(atom)
            common = shared
        if not common:
            return []
    return common or []


def _removed(monomial: Monomial, atoms: list[Atom]) -> Monomial:
    left = list(monomial)
    for atom in atoms:
        left.remove(atom)
    return tuple(left)


def modulo(a: Expr, b: Expr) -> Expr:
    """a % b, with the sign of b."""
    return subtract(a, multiply(b, floordiv(a, b)))


def _extreme(kind: str, args: tuple[Expr, ...]) -> Expr:
    flat: list[Expr] = []
    for arg in args:
        inner = _as_atom(arg)
        flat.extend(inner.args if inner is not None and inner.kind == kind else (arg,))
    remaining: list[Expr] = []
    for candidate in dict.fromkeys(flat):
        beaten = False
        for other in list(remaining):
            low, high = range_of(candidate - other if kind == "max" else other - candidate)
            if high <= 0:
                beaten = True
                break
            if low >= 0:
                remaining.remove(other)
        if not beaten:
            remaining.append(candidate)
    if len(remaining) == 1:
        return remaining[0]
    remaining.sort(key=lambda e: (e.is_constant, e.number))
    return _intern({(_atom(kind, tuple(remaining)),): 1})


def _as_atom(e: Expr) -> Atom | None:
    if len(e.terms) == 1:
        ((monomial, value),) = e.terms.items()
        if value == 1 and len(monomial) == 1:
            return monomial[0]
    return None


def minimum(*args: Expr) -> Expr:
    return _extreme("min", args)


def maximum(*args: Expr) -> Expr:
    return _extreme("max", args)


def power(a: Expr, n: int) -> Expr:
    result = constant(1)
    for _ in range(n):
        result = multiply(result, a)
    return result


# ---------------------------------------------------------------------------------------------- remainders


def split_remainders(e: Expr) -> tuple[list[tuple[int, Expr, Expr]], Expr]:
    """An expression as a sum of factor * (a % b) and a rest, undoing what `modulo` wrote."""
    pairs: list[tuple[int, Expr, Expr]] = []
    rest = e
    for monomial, value in e.terms.items():
        for atom in monomial:
            if atom.kind != "floordiv" or monomial not in rest.terms:
                continue
            a, b = atom.args
            # The term is -factor * b * (a // b), possibly one of several when b is a sum.
            lead = _leading(b)
            others = _without(monomial, (atom,))
            if others != lead or value % b.terms[lead]:
                continue
            factor = -value // b.terms[lead]
            candidate = add(rest, scale(modulo_form(a, b, atom), -factor))
            if len(candidate.terms) < len(rest.terms):
                pairs.append((factor, a, b))
                rest = candidate
                break
    return pairs, rest


def modulo_form(a: Expr, b: Expr, quotient: Atom) -> Expr:
    return add(a, scale(multiply(b, _intern({(quotient,): 1})), -1))


# ---------------------------------------------------------------------------------------------- ranges


def range_of(e: Expr) -> tuple[Number, Number]:
    """Bounds from what all symbols are known to be."""
    if e._range is None:
        e._range = bounds(e, None)
    return e._range


def _times(a: Number, b: Number) -> Number:
    return 0 if a == 0 or b == 0 else a * b


def _atom_range(atom: Atom, known: dict[Atom, tuple[Number, Number]] | None = None) -> tuple[Number, Number]:
    if atom.kind == "symbol":
        return known[atom] if known and atom in known else (atom.lower, inf)
    ranges = [bounds(arg, known) if known else range_of(arg) for arg in atom.args]
    if atom.kind == "min":
        return min(r[0] for r in ranges), min(r[1] for r in ranges)
    if atom.kind == "max":
        return max(r[0] for r in ranges), max(r[1] for r in ranges)
    (low, high), (divisor_low, divisor_high) = ranges
    if divisor_low <= 0:
        return (0, high) if low >= 0 and divisor_low >= 0 else (-inf, inf)
    ends = [_floor(x, d) for x in (low, high) for d in (divisor_low, divisor_high)]
    return min(ends), max(ends)


def _floor(x: Number, d: Number) -> Number:
    if d == inf:
        return 0 if x >= 0 else -1
    return x if x in (inf, -inf) else x // d


def bounds(e: Expr, known: dict[Atom, tuple[Number, Number]] | None) -> tuple[Number, Number]:
    """Bounds of an expression, given bounds of symbols."""
    low, high = _plain_bounds(e, known)
    if len(e.terms) < 2:
        return low, high
    remainders, rest = split_remainders(e)
    if remainders:
        other_low, other_high = _plain_bounds(rest, known)
        for factor, _, b in remainders:
            divisor_low, divisor_high = bounds(b, known)
            if divisor_low <= 0:
                return low, high
            ends = (0, _times(factor, divisor_high - 1))
            other_low, other_high = other_low + min(ends), other_high + max(ends)
        low, high = max(low, other_low), min(high, other_high)
    quotients = [monomial for monomial in e.terms if _is_quotient(monomial)]
    if quotients and (low == -inf or high == inf):
        return max(low, _without_quotients(e, quotients, known, -1)), min(
            high, _without_quotients(e, quotients, known, 1)
        )
    return low, high


def _is_quotient(monomial: Monomial) -> bool:
    """Whether a monomial is a // b, for a positive number b."""
    if len(monomial) != 1 or monomial[0].kind != "floordiv":
        return False
    divisor = monomial[0].args[1]
    return divisor.is_constant and divisor.constant > 0


def _without_quotients(
    e: Expr, quotients: list[Monomial], known: dict[Atom, tuple[Number, Number]] | None, sign: int
) -> Number:
    """A lower bound (for the sign -1) or an upper one: a // b is between (a - b + 1) / b and a / b."""
    whole = lcm(*(monomial[0].args[1].constant for monomial in quotients))
    relaxed = scale(e, whole)
    for monomial in quotients:
        (a, b), value = monomial[0].args, e.terms[monomial]
        end = a if (value > 0) == (sign > 0) else a - (b.constant - 1)
        exact = _intern({monomial: value * whole})
        relaxed = add(subtract(relaxed, exact), scale(end, value * (whole // b.constant)))
    low, high = bounds(relaxed, known)
    if sign > 0:
        return high if high in (inf, -inf) else high // whole
    return low if low in (inf, -inf) else -(-low // whole)


def _plain_bounds(e: Expr, known: dict[Atom, tuple[Number, Number]] | None) -> tuple[Number, Number]:
    low: Number = 0
    high: Number = 0
    for monomial, value in e.terms.items():
        if not monomial:
            low, high = low + value, high + value
            continue
        if len(monomial) == 1:
            first, last = _atom_range(monomial[0], known)
            first, last = _times(first, value), _times(last, value)
            low, high = (low + first, high + last) if value > 0 else (low + last, high + first)
            continue
        term_low: Number = 1
        term_high: Number = 1
        for atom in monomial:
            atom_low, atom_high = _atom_range(atom, known)
            ends = (_times(term_low, atom_low), _times(term_low, atom_high), _times(term_high, atom_low),
                    _times(term_high, atom_high))  # fmt: skip
            term_low, term_high = min(ends), max(ends)
        term_low, term_high = _times(term_low, value), _times(term_high, value)
        if value < 0:
            term_low, term_high = term_high, term_low
        low, high = low + term_low, high + term_high
    return low, high


# ---------------------------------------------------------------------------------------------- values


def evaluate(e: Expr, values: dict[Atom, int]) -> int:
    """The number an expression is for given values of its symbols."""
    total = 0
    for monomial, value in e.terms.items():
        for atom in monomial:
            value *= _atom_value(atom, values)
        total += value
    return total


def _atom_value(atom: Atom, values: dict[Atom, int]) -> int:
    if atom.kind == "symbol":
        return values[atom]
    args = [evaluate(arg, values) for arg in atom.args]
    if atom.kind == "floordiv":
        return args[0] // args[1]
    return min(args) if atom.kind == "min" else max(args)


def substitute(e: Expr, table: dict[Atom, Expr]) -> Expr:
    """The expression with symbols replaced by expressions."""
    if not table or table.keys().isdisjoint(e.symbols):
        return e
    total = constant(0)
    for monomial, value in e.terms.items():
        term = constant(value)
        for atom in monomial:
            if atom.kind == "symbol":
                factor = table.get(atom) or _intern({(atom,): 1})
            else:
                args = [substitute(arg, table) for arg in atom.args]
                if atom.kind == "floordiv":
                    factor = floordiv(args[0], args[1])
                else:
                    factor = _extreme(atom.kind, tuple(args))
            term = multiply(term, factor)
        total = add(total, term)
    return total
