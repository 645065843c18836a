"""Expressions of op records as Python functions of numbers.

An expression is printed as a Python function whose names are those of the tables below: one for real numbers (integers
among them), one for complex numbers. Results that leave the real numbers follow IEEE 754.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from typing import Any

INF, NAN = math.inf, math.nan


def _ieee(function: Callable[..., float], pole: float = NAN, domain: float = NAN) -> Callable[..., float]:
    """math's function, with values where it raises."""

    def call(*args: Any) -> float:
        try:
            return function(*args)
        except OverflowError:
            return pole if not math.isnan(pole) else INF
        except ValueError:
            return domain

    return call


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return trunc_divide(a, b)
    if b == 0:
        return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1.0, b)
    return a / b


def trunc_divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise RuntimeError("[div] expected a divisor that is not zero for integers, got 0 (ZeroDivisionError)")
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return _keep(math.trunc)(_divide(a, b))


def floor_divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise RuntimeError(
                "[floor_divide] expected a divisor that is not zero for integers, got 0 (ZeroDivisionError)"
            )
        return a // b
    return _keep(math.floor)(_divide(a, b)) if b == 0 or not math.isfinite(a) else a // b


def remainder(a: Any, b: Any) -> Any:
    if b == 0:
        if isinstance(a, int) and isinstance(b, int):
            raise RuntimeError(
                "[remainder] expected a divisor that is not zero for integers, got 0 (ZeroDivisionError)"
            )
        return NAN
    if not math.isfinite(a):
        return NAN
    return a % b


def fmod(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise RuntimeError("[fmod] expected a divisor that is not zero for integers, got 0 (ZeroDivisionError)")
        return a - b * trunc_divide(a, b)
    return _ieee(math.fmod)(a, b)


def _keep(function: Callable[[float], int]) -> Callable[[Any], Any]:
    """Rounding that leaves integers, nan and infinities as they are."""

    def call(x: Any) -> Any:
        if isinstance(x, int) or not math.isfinite(x):
            return x
        return math.copysign(float(function(x)), x)

    return call


def _power(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return ipow(a, b)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and float(b).is_integer() and b % 2 else INF
    except ValueError:
        if a == 0:
            odd = float(b).is_integer() and b % 2
            return math.copysign(INF, a) if odd else INF
        return NAN


def ipow(a: int, b: int) -> int:
    if b < 0:
        return 1 if a == 1 else (1 if b % 2 == 0 else -1) if a == -1 else 0
    return pow(a, b)


def maximum(a: Any, b: Any) -> Any:
    return a if a != a else b if b != b else max(a, b)


def _sigmoid(x: Any) -> Any:
    if isinstance(x, complex):
        return 1 / (1 + cmath.exp(-x))
    return 1 / (1 + _exp(-x))


_exp = _ieee(math.exp, pole=INF)


def _log_real(x: float, function: Callable[[float], float] = math.log) -> float:
    return -INF if x == 0 else function(x) if x > 0 else NAN


def _digamma(x: float) -> float:
    if x == 0:
        return math.copysign(INF, -x)
    if x < 0:
        return NAN if x == math.floor(x) else _digamma(1 - x) - math.pi / math.tan(math.pi * x)
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    y = 1 / (x * x)
    return shift + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))


def _divide_complex(a: complex, b: complex) -> complex:
    return a / b if b != 0 else complex(NAN, NAN)


def _logaddexp_complex(a: complex, b: complex) -> complex:
    high = max(a.real, b.real)
    return high + cmath.log(cmath.exp(a - high) + cmath.exp(b - high))


def _logaddexp(a: float, b: float, log: Callable[[float], float] = math.log, base: float = math.e) -> float:
    high = maximum(a, b)
    if high != high or math.isinf(high):
        return high
    return high + log(base ** (a - high) + base ** (b - high))


def _angle(x: Any) -> float:
    if isinstance(x, complex):
        return cmath.phase(x)
    return NAN if x != x else math.pi if x < 0 else 0.0


REAL: dict[str, Callable[..., Any]] = {
    "div": _divide, "trunc_divide": trunc_divide, "floor_divide": floor_divide, "remainder": remainder, "fmod": fmod,
    "pow": _power, "ipow": ipow, "maximum": maximum,
    "minimum": lambda a, b: a if a != a else b if b != b else min(a, b), "abs": abs,
    "fmax": lambda a, b: b if a != a else a if b != b else max(a, b),
    "fmin": lambda a, b: b if a != a else a if b != b else min(a, b), "exp": _exp,
    "exp2": _ieee(lambda x: 2.0**x, pole=INF), "expm1": _ieee(math.expm1, pole=INF), "log": _log_real,
    "log2": lambda x: _log_real(x, math.log2), "log10": lambda x: _log_real(x, math.log10),
    "log1p": lambda x: -INF if x == -1 else math.log1p(x) if x > -1 else NAN, "sqrt": _ieee(math.sqrt),
    "rsqrt": lambda x: _divide(1.0, _ieee(math.sqrt)(x)), "sin": _ieee(math.sin), "cos": _ieee(math.cos),
    "tan": _ieee(math.tan), "asin": _ieee(math.asin), "acos": _ieee(math.acos), "atan": math.atan,
    "atan2": math.atan2, "sinh": lambda x: _ieee(math.sinh, math.copysign(INF, x))(x), "cosh": _ieee(math.cosh, INF),
    "tanh": math.tanh, "asinh": math.asinh, "acosh": _ieee(math.acosh),
    "atanh": lambda x: math.copysign(INF, x) if abs(x) == 1 else _ieee(math.atanh)(x), "erf": math.erf,
    "erfc": math.erfc, "lgamma": _ieee(math.lgamma, INF, INF), "digamma": _digamma, "hypot": math.hypot,
    "ceil": _keep(math.ceil), "floor": _keep(math.floor), "trunc": _keep(math.trunc), "round": _keep(round),
    "sigmoid": _sigmoid, "silu": lambda x: x * _sigmoid(x),
    "mish": lambda x: x * math.tanh(x if x > 30 else math.log1p(_exp(x))),
    "gelu_erf": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "copysign": math.copysign, "nextafter": math.nextafter, "gcd": math.gcd, "lcm": math.lcm,
    "isfinite": math.isfinite, "isinf": math.isinf, "real": lambda x: x, "imag": lambda x: 0, "conj": lambda x: x,
    "angle": _angle, "logaddexp": _logaddexp, "logaddexp2": lambda a, b: _logaddexp(a, b, math.log2, 2.0),
    "xlogy": lambda x, y: NAN if y != y else 0.0 if x == 0 else x * _log_real(y),
    "xlog1py": lambda x, y: NAN if y != y else 0.0 if x == 0 else x * _log_real(1 + y),
    "sinc": lambda x: 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x),
    "entr": lambda x: x if x != x else -x * math.log(x) if x > 0 else 0.0 if x == 0 else -INF,
    "ndtr": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), "make_complex": complex,
    "lshift": lambda a, b: a << b if 0 <= b < 64 else 0, "rshift": lambda a, b: a >> b if 0 <= b < 64 else -(a < 0),
}  # fmt: skip

COMPLEX: dict[str, Callable[..., Any]] = {
    **{name: _ieee(getattr(cmath, name)) for name in
       "exp log log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh".split()},
    "div": _divide_complex, "pow": lambda a, b: a**b, "abs": abs, "sigmoid": _sigmoid,
    "log2": lambda x: cmath.log(x) / math.log(2), "exp2": lambda x: 2**x,
    "rsqrt": lambda x: _divide_complex(1, cmath.sqrt(x)),
    "log1p": lambda x: cmath.log(1 + x), "expm1": lambda x: cmath.exp(x) - 1, "silu": lambda x: x * _sigmoid(x),
    "real": lambda x: x.real, "imag": lambda x: x.imag, "conj": lambda x: x.conjugate(), "angle": _angle,
    "isfinite": cmath.isfinite, "isinf": cmath.isinf, "make_complex": lambda a, b: complex(a.real, b.real),
    "logaddexp": _logaddexp_complex, "sinc": lambda x: 1 if x == 0 else cmath.sin(math.pi * x) / (math.pi * x),
}  # fmt: skip

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "bitand": "&", "bitor": "|", "bitxor": "^", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "eq": "==", "ne": "!=", "land": "and", "lor": "or",
}  # fmt: skip
_PREFIX = {"neg": "-", "bitnot": "~", "lnot": "not "}


class _Printer:
    """Prints an expression as Python statements, each shared subexpression once."""

    def __init__(self, dtype: Any) -> None:
        self.table = {**REAL, **COMPLEX} if dtype.is_complex else REAL
        self.real = dtype.is_floating_point
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.seen: dict[tuple[Any, ...], str] = {}
        self.visited: dict[int, str] = {}  # nodes may be shared many times over

    def visit(self, node: Any) -> str:
        text = self.visited.get(id(node))
        if text is None:
            text = self.visited[id(node)] = self._visit(node)
        return text

    def _visit(self, node: Any) -> str:
        if node.op == "arg":
            return str(node.args[0])
        if node.op == "const":
            name = f"k{len(self.scope)}"
            value = node.args[0]
            self.scope[name] = (
                float(value) if self.real and type(value) is int else value
            )  # constants have the dtype too
            return name
        args = [self.visit(a) for a in node.args]
        key = (node.op, *args)
        if key not in self.seen:
            self.seen[key] = f"t{len(self.seen)}"
            self.lines.append(f"    {self.seen[key]} = {self.text(node.op, args)}")
        return self.seen[key]

    def text(self, op: str, args: list[str]) -> str:
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _PREFIX:
            return f"{_PREFIX[op]}{args[0]}"
        if op == "where":
            return f"{args[1]} if {args[0]} else {args[2]}"
        if op not in self.table:
            raise NotImplementedError(f"[{op}] expected a function that the reference device has, got {op}")
        self.scope[f"f_{op}"] = self.table[op]
        return f"f_{op}({', '.join(args)})"


def function(node: Any, arguments: list[str], dtype: Any) -> Callable[..., Any]:
    """The expression as a Python function of its arguments, given in this order."""
    printer = _Printer(dtype)
    result = printer.visit(node)
    source = "\n".join([f"def element({', '.join(arguments)}):", *printer.lines, f"    return {result}"])
    exec(source, printer.scope)
    return printer.scope["element"]
