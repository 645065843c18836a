"""SymInt, SymBool and SymFloat: symbolic values that behave like Python's numbers.

Arithmetic gives symbolic results, or plain numbers where nothing symbolic is left. Each value carries its hint, the
number it has in the example at hand. Where Python needs to know (a branch, an index), the answer is that of the hint,
and the ShapeEnv records what was assumed as a guard.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Union

from flambeau.ops.symbolic import condition as conditions
from flambeau.ops.symbolic import expr as exprs
from flambeau.ops.symbolic.condition import Condition
from flambeau.ops.symbolic.expr import Expr, constant

if TYPE_CHECKING:
    from flambeau.ops.symbolic.shape_env import ShapeEnv

IntLike = Union[int, "SymInt"]


def _handle(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Operators called with symbolic numbers are answered by fake tensors."""
    from flambeau._subclasses.fake_tensor import handle_symbolic_call

    return handle_symbolic_call(func, args, kwargs or {})


class SymInt:
    """An integer known as an expression."""

    __slots__ = ("expr", "env", "hint")

    expr: Expr
    env: ShapeEnv
    hint: int | None

    def __init__(self, expr: Expr, env: ShapeEnv, hint: int | None) -> None:
        self.expr = expr
        self.env = env
        self.hint = hint

    __torch_function__ = staticmethod(_handle)

    @property
    def node(self) -> SymInt:
        return self

    @property
    def shape_env(self) -> ShapeEnv:
        return self.env

    def has_hint(self) -> bool:
        return self.hint is not None

    def __repr__(self) -> str:
        return repr(self.expr)

    def __hash__(self) -> int:
        return hash(self.expr)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"[SymInt] expected plain numbers to pickle, got {self}, which means something in its trace only"
        )

    # ------------------------------------------------------------------------------------------ arithmetic
    # +, -, *, // and % are made by `_operation` below.

    if TYPE_CHECKING:

        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __rfloordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __rmod__(self, other: Any) -> Any: ...

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __truediv__(self, other: Any) -> Any:
        return _float("/", operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _float("/", operator.truediv, other, self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and other >= 0:
            return wrap(exprs.power(self.expr, other), self.env, None if self.hint is None else self.hint**other)
        return _float("**", operator.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return other ** int(self) if isinstance(other, int) else _float("**", operator.pow, other, self)

    def __neg__(self) -> Any:
        return wrap(exprs.scale(self.expr, -1), self.env, None if self.hint is None else -self.hint)

    def __pos__(self) -> SymInt:
        return self

    def __abs__(self) -> Any:
        return sym_max(self, -self)

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << int(other))

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << int(other))

    def __and__(self, other: Any) -> Any:
        return int(self) & int(other)

    def __or__(self, other: Any) -> Any:
        return int(self) | int(other)

    __rand__, __ror__ = __and__, __or__

    def __round__(self, digits: int | None = None) -> SymInt:
        return self

    def __trunc__(self) -> SymInt:
        return self

    def __floor__(self) -> SymInt:
        return self

    def __ceil__(self) -> SymInt:
        return self

    def is_integer(self) -> bool:
        return True

    # ------------------------------------------------------------------------------------------ comparison

    def __eq__(self, other: object) -> Any:
        return _compare(self, other, conditions.eq, operator.eq, False)

    def __ne__(self, other: object) -> Any:
        return _compare(self, other, conditions.ne, operator.ne, True)

    def __ge__(self, other: Any) -> Any:
        return _compare(self, other, conditions.ge, operator.ge)

    def __gt__(self, other: Any) -> Any:
        return _compare(self, other, lambda e: conditions.ge(e - 1), operator.gt)

    def __le__(self, other: Any) -> Any:
        return _compare(self, other, lambda e: conditions.ge(-e), operator.le)

    def __lt__(self, other: Any) -> Any:
        return _compare(self, other, lambda e: conditions.ge(-e - 1), operator.lt)

    # ------------------------------------------------------------------------------------------ what Python must know

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __int__(self) -> int:
        return self.env.specialize(self)

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def __sym_float__(self) -> Any:
        return _float("float", float, self)

    def __sym_max__(self, other: Any) -> Any:
        return sym_max(self, other)

    def __sym_min__(self, other: Any) -> Any:
        return sym_min(self, other)


class SymBool:
    """A condition. Asked for its truth, it answers as at the hints, and what was assumed becomes a guard."""

    __slots__ = ("condition", "env", "hint")

    def __init__(self, condition: Condition, env: ShapeEnv, hint: bool | None) -> None:
        self.condition = condition
        self.env = env
        self.hint = hint

    __torch_function__ = staticmethod(_handle)

    @property
    def node(self) -> SymBool:
        return self

    @property
    def expr(self) -> Condition:
        return self.condition

    def __repr__(self) -> str:
        return repr(self.condition)

    def __bool__(self) -> bool:
        return self.env.evaluate(self.condition, self.hint)

    def __int__(self) -> int:
        return int(bool(self))

    def __hash__(self) -> int:
        return hash(self.condition)

    def __eq__(self, other: object) -> Any:
        return bool(self) == bool(other)

    def __and__(self, other: Any) -> Any:
        return _logic("and", self, other)

    def __or__(self, other: Any) -> Any:
        return _logic("or", self, other)

    __rand__, __ror__ = __and__, __or__

    def __sym_not__(self) -> SymBool:
        return SymBool(self.condition.negated(), self.env, None if self.hint is None else not self.hint)

    def __invert__(self) -> SymBool:
        return self.__sym_not__()


class SymFloat:
    """A float computed from symbolic integers: how, and its value at the hints."""

    __slots__ = ("text", "env", "hint", "compute", "ratio", "call")

    def __init__(
        self,
        text: str,
        env: ShapeEnv,
        hint: float | None,
        compute: Callable[[Any], float],
        ratio: tuple[Expr, int] | None = None,
        call: tuple[Callable[..., Any], tuple[Any, ...]] | None = None,
    ) -> None:
        self.text = text
        self.env = env
        self.hint = hint
        self.compute = compute
        self.ratio = ratio  # numerator and denominator, where the value is a fraction of integers
        self.call = call  # the function that gives it, and its arguments

    __torch_function__ = staticmethod(_handle)

    @property
    def node(self) -> SymFloat:
        return self

    @property
    def expr(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __float__(self) -> float:
        return self.env.specialize_float(self)

    def __int__(self) -> int:
        return int(float(self))

    def __bool__(self) -> bool:
        return bool(float(self))

    def __add__(self, other: Any) -> Any:
        return _float("+", operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _float("+", operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _float("-", operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _float("-", operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _float("*", operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _float("*", operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return _float("/", operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _float("/", operator.truediv, other, self)

    def __pow__(self, other: Any) -> Any:
        return _float("**", operator.pow, self, other)

    def __rpow__(self, other: Any) -> Any:
        return _float("**", operator.pow, other, self)

    def __neg__(self) -> Any:
        return _float("neg", operator.neg, self)

    def __abs__(self) -> Any:
        return _float("abs", abs, self)

    def __sym_sqrt__(self) -> Any:
        return _float("math.sqrt", math.sqrt, self)

    def __trunc__(self) -> Any:
        if self.ratio is not None and exprs.range_of(self.ratio[0])[0] >= 0:
            return math.floor(self)
        return math.trunc(float(self))

    def __floor__(self) -> Any:
        if self.ratio is None:
            return math.floor(float(self))
        numerator, denominator = self.ratio
        hint = None if self.hint is None else math.floor(self.hint)
        return wrap(exprs.floordiv(numerator, constant(denominator)), self.env, hint)

    def __ceil__(self) -> Any:
        return -math.floor(-self) if self.ratio is not None else math.ceil(float(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(float(self), digits)

    def is_integer(self) -> bool:
        return float(self).is_integer()

    def __eq__(self, other: object) -> Any:
        return _compare_floats(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return _compare_floats(operator.ne, self, other)

    def __lt__(self, other: Any) -> Any:
        return _compare_floats(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _compare_floats(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compare_floats(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compare_floats(operator.ge, self, other)


# ---------------------------------------------------------------------------------------------- helpers


def wrap(expr: Expr, env: ShapeEnv, hint: int | None) -> IntLike:
    """An expression as a SymInt, or as a number when it is one."""
    return expr.constant if expr.is_constant else SymInt(expr, env, hint)


def expr_of(value: Any) -> Expr:
    return value.expr if type(value) is SymInt else constant(value)


def hint_of(value: Any) -> Any:
    """The number a value has at the hints; numbers are their own hint. Of one that depends on data, its stand-in."""
    if isinstance(value, (SymInt, SymFloat, SymBool)):
        return value.env.stand_in(value) if value.hint is None else value.hint
    return value


def _operation(on_exprs: Callable[..., Expr], on_numbers: Callable[[Any, Any], Any], reflected: bool) -> Any:
    """The method of SymInt for an operator. Tracing calls these more than anything else of this package."""
    constants = exprs._CONSTANTS

    def method(self: SymInt, other: Any) -> Any:
        kind = type(other)
        if kind is SymInt:
            other_expr, other_hint = other.expr, other.hint
        elif kind is int:
            other_expr, other_hint = constants.get(other) or constant(other), other
        elif isinstance(other, int):  # bool
            return method(self, int(other))
        elif isinstance(other, (float, SymFloat)):
            return _float(_SIGNS[on_numbers], on_numbers, *((other, self) if reflected else (self, other)))
        else:
            return NotImplemented
        hint = self.hint
        if reflected:
            expr = on_exprs(other_expr, self.expr)
            hint = None if hint is None else on_numbers(other_hint, hint)
        else:
            expr = on_exprs(self.expr, other_expr)
            hint = None if hint is None or other_hint is None else on_numbers(hint, other_hint)
        if expr.is_constant:
            return expr.constant
        result = _new(SymInt)
        result.expr = expr
        result.env = self.env
        result.hint = hint
        return result

    return method


_new = object.__new__

_SIGNS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.mod: "%",
}  # fmt: skip
for _name, _on_exprs, _on_numbers in (
    ("add", exprs.add, operator.add),
    ("sub", exprs.subtract, operator.sub),
    ("mul", exprs.multiply, operator.mul),
    ("floordiv", exprs.floordiv, operator.floordiv),
    ("mod", exprs.modulo, operator.mod),
):
    setattr(SymInt, f"__{_name}__", _operation(_on_exprs, _on_numbers, reflected=False))
    setattr(SymInt, f"__r{_name}__", _operation(_on_exprs, _on_numbers, reflected=True))


def _compare(
    a: SymInt,
    b: Any,
    make: Callable[[Expr], Condition],
    on_numbers: Callable[[Any, Any], Any],
    otherwise: Any = NotImplemented,
) -> Any:
    if isinstance(b, (int, SymInt)):
        condition = make(exprs.subtract(a.expr, expr_of(b)))
        known = condition.decided()
        if known is not None:
            return known
        other = b.hint if type(b) is SymInt else b
        return SymBool(condition, a.env, None if a.hint is None or other is None else bool(on_numbers(a.hint, other)))
    if isinstance(b, (float, SymFloat)):
        return on_numbers(_float("float", float, a), b)
    return otherwise


def _compare_floats(compare: Callable[[Any, Any], Any], a: SymFloat, b: Any) -> Any:
    """A comparison of fractions of sizes is one of sizes; other floats become numbers."""
    if isinstance(b, (int, float, SymInt, SymFloat)) and a.ratio is not None:
        other = _fraction(b)
        if other is not None:
            (x, d), (y, e) = a.ratio, other
            left = wrap(exprs.scale(x, e), a.env, None if a.hint is None else _whole(a.hint, d) * e)
            hint = hint_of(b) if not isinstance(b, (SymInt, SymFloat)) or b.hint is not None else None
            right = wrap(exprs.scale(y, d), a.env, None if hint is None else _whole(hint, e) * d)
            return compare(left, right)
    return compare(float(a), float(b) if isinstance(b, SymFloat) else b)


def _whole(value: float, denominator: int) -> int:
    """The numerator of a fraction whose value is known."""
    return round(value * denominator)


def _logic(kind: str, a: SymBool, b: Any) -> Any:
    if isinstance(b, bool):
        return (a if b else False) if kind == "and" else (True if b else a)
    if not isinstance(b, SymBool):
        return NotImplemented
    join = conditions.conjunction if kind == "and" else conditions.disjunction
    hint = None
    if a.hint is not None and b.hint is not None:
        hint = (a.hint and b.hint) if kind == "and" else (a.hint or b.hint)
    return SymBool(join(a.condition, b.condition), a.env, hint)


def _float(sign: str, compute: Callable[..., Any], *args: Any) -> Any:
    """A symbolic float: how it reads, how it is computed from values of the symbols, and its hint."""
    env = next(a.env for a in args if isinstance(a, (SymInt, SymFloat)))
    if not all(isinstance(a, (int, float, SymInt, SymFloat)) for a in args):
        return NotImplemented
    texts = [str(a) if isinstance(a, (int, float)) else f"({a})" for a in args]
    text = f"{texts[0]} {sign} {texts[1]}" if len(args) == 2 else f"{sign}({texts[0]})"
    hints = [a.hint if isinstance(a, (SymInt, SymFloat)) else a for a in args]
    hint = None if any(h is None for h in hints) else compute(*hints)

    def at(values: Any) -> float:
        numbers = [
            exprs.evaluate(a.expr, values) if type(a) is SymInt else (a.compute(values) if type(a) is SymFloat else a)
            for a in args
        ]
        return float(compute(*numbers))

    return SymFloat(text, env, hint, at, _ratio(sign, *args), (compute, args))


def float_of(function: Callable[..., Any], *args: Any) -> SymFloat:
    """The float that a function of symbolic numbers gives."""
    result = _float(_FLOAT_SIGNS.get(function, getattr(function, "__name__", "function")), function, *args)
    assert isinstance(result, SymFloat)
    return result


_FLOAT_SIGNS: dict[Any, str] = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.pow: "**", operator.neg: "neg",
    operator.abs: "abs",
}  # fmt: skip


def _ratio(sign: str, *args: Any) -> tuple[Expr, int] | None:
    """The value of an operation as a fraction, if its operands are fractions with small denominators."""
    fractions = [f for a in args if (f := _fraction(a)) is not None]
    if len(fractions) < len(args):
        return None
    (x, d), (y, e) = fractions[0], fractions[-1]
    if sign == "neg":
        return exprs.scale(x, -1), d
    if sign == "float":
        return x, d
    if sign == "*":
        return exprs.multiply(x, y), d * e
    if sign == "+":
        return exprs.add(exprs.scale(x, e), exprs.scale(y, d)), d * e
    if sign == "-":
        return exprs.subtract(exprs.scale(x, e), exprs.scale(y, d)), d * e
    if sign == "/" and y.is_constant and y.constant > 0:
        return exprs.scale(x, e), d * y.constant
    return None


def _fraction(a: Any) -> tuple[Expr, int] | None:
    """A number as numerator and denominator, if that is small."""
    if type(a) is SymInt:
        return a.expr, 1
    if type(a) is SymFloat:
        return a.ratio
    if not math.isfinite(a):
        return None
    top, bottom = a.as_integer_ratio()
    return None if bottom > 4096 else (constant(top), bottom)


# ---------------------------------------------------------------------------------------------- functions


def _extreme(name: str, a: Any, b: Any) -> Any:
    choose = max if name == "max" else min
    if isinstance(a, SymInt) or isinstance(b, SymInt):
        if isinstance(a, (float, SymFloat)) or isinstance(b, (float, SymFloat)):
            return _float(name, choose, sym_float(a), sym_float(b))
        env = a.env if isinstance(a, SymInt) else b.env
        combine = exprs.maximum if name == "max" else exprs.minimum
        ha, hb = (x.hint if isinstance(x, SymInt) else x for x in (a, b))
        return wrap(combine(expr_of(a), expr_of(b)), env, None if ha is None or hb is None else choose(ha, hb))
    if isinstance(a, SymFloat) or isinstance(b, SymFloat):
        return _float(name, choose, a, b)
    for x in (a, b):
        if not isinstance(x, (int, float)) and not hasattr(x, "__float__"):
            raise AssertionError(f"[sym_{name}] expected numbers, got {type(x).__name__}")
    # As for tensors, one float makes the result a float.
    floating = isinstance(a, float) or isinstance(b, float)
    return float(choose(a, b)) if floating else choose(a, b)


def sym_max(a: Any, b: Any) -> Any:
    """The larger of two sizes.

    >>> flambeau.sym_max(2, 3)
    3
    """
    return _extreme("max", a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller of two sizes.

    >>> flambeau.sym_min(2, 3)
    2
    """
    return _extreme("min", a, b)


def sym_float(a: Any) -> Any:
    """A size as a float, which may be symbolic.

    >>> flambeau.sym_float(3)
    3.0
    """
    if isinstance(a, SymFloat):
        return a
    return a.__sym_float__() if isinstance(a, SymInt) else float(a)


def sym_int(a: Any) -> Any:
    """The integer part of a number.

    >>> flambeau.sym_int(2.9)
    2
    """
    if isinstance(a, SymFloat):
        return math.trunc(a)
    return a if isinstance(a, SymInt) else int(a)


def sym_not(a: Any) -> Any:
    """Not, of a condition on sizes.

    >>> flambeau.sym_not(2 == 3)
    True
    """
    return a.__sym_not__() if isinstance(a, SymBool) else not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f.

    >>> flambeau.sym_ite(True, 1, 2)
    1
    """
    if not isinstance(b, (bool, SymBool)):
        raise AssertionError(f"[sym_ite] expected a bool condition, got {type(b).__name__}")
    if type(t) is not type(f):
        raise AssertionError(f"[sym_ite] expected choices of one type, got {type(t).__name__} and {type(f).__name__}")
    return t if b else f


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, given one by one or as a list.

    >>> flambeau.sym_sum([1, 2, 3])
    6
    """
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    return sum(args)


def sym_sqrt(a: Any) -> Any:
    """The square root of a number, which may be symbolic.

    >>> flambeau.sym_sqrt(9)
    3.0
    """
    return _float("math.sqrt", math.sqrt, a) if isinstance(a, (SymInt, SymFloat)) else math.sqrt(a)
