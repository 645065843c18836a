"""The functions of record expressions in Triton's words.

Some are Triton's own or the device library's; others are written in terms of those, as expressions, so that shared parts
are computed once. A function that is in none of the tables has no place in a generated GPU kernel: the operator is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.ops import expr as e
from flambeau.ops.expr import Expr

__all__ = ["COMPARISONS", "INFIX", "PREFIX", "REWRITES", "known", "text"]

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bitand": "&", "bitor": "|", "bitxor": "^", "lshift": "<<",
    "rshift": ">>",
}  # fmt: skip
COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
PREFIX = {"neg": "-", "bitnot": "~"}

# Of the device library, by the name it has there. All take and return floating point numbers.
_LIBRARY = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atan2": "atan2",
    "atanh": "atanh", "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1", "copysign": "copysign",
    "cos": "cos", "cosh": "cosh", "erf": "erf", "erfc": "erfc", "erfcx": "erfcx", "erfinv": "erfinv", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "fmod": "fmod", "hypot": "hypot", "i0": "cyl_bessel_i0", "i1": "cyl_bessel_i1",
    "lgamma": "lgamma", "log": "log", "log10": "log10", "log1p": "log1p", "log2": "log2", "ndtr": "normcdf",
    "ndtri": "normcdfinv", "nextafter": "nextafter", "pow": "pow", "round": "rint", "rsqrt": "rsqrt", "sin": "sin",
    "sinh": "sinh", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip
_LANGUAGE = {
    "abs": "tl.abs", "floor": "tl.floor", "ceil": "tl.ceil", "sqrt": "tl.sqrt",
    "fast_exp2": "fast_exp2", "fast_inverse": "fast_inverse",
}  # fmt: skip


def _remainder(a: Expr, b: Expr) -> Expr:
    rest = e.fmod(a, b)
    return e.where(e.land(rest != 0, (rest < 0) != (b < 0)), rest + b, rest)


def _floor_divide(a: Expr, b: Expr) -> Expr:
    return e.where(b == 0, a / b, e.floor((a - _remainder(a, b)) / b + 0.5))


def _sigmoid(x: Expr) -> Expr:
    return 1.0 / (1.0 + e.exp(-x))


def _mish(x: Expr) -> Expr:
    grown = e.exp(e.where(x < 22.0, x, 22.0))
    ratio = grown * (grown + 2.0)
    return x * (ratio / (ratio + 2.0))


def _logaddexp(a: Expr, b: Expr) -> Expr:
    sum_of = e.maximum(a, b) + e.log1p(e.exp(-e.abs(a - b)))
    return e.where(a == b, a + 0.6931471805599453, sum_of)


# In terms of other expressions, for floating point numbers.
REWRITES: dict[str, Callable[..., Expr]] = {
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "gelu_erf": lambda x: 0.5 * x * (1.0 + e.erf(x * 0.7071067811865476)),
    "gelu_tanh": lambda x: x * _sigmoid(1.5957691216057308 * (x * (x * x * 0.044715 + 1.0))),
    "mish": _mish,
    "fmax": lambda a, b: e.where(b != b, a, e.where(a > b, a, b)),
    "fmin": lambda a, b: e.where(b != b, a, e.where(a < b, a, b)),
    "xlogy": lambda a, b: e.where(b != b, b, e.where(a == 0, 0.0, a * e.log(b))),
    "xlog1py": lambda a, b: e.where(b != b, b, e.where(a == 0, 0.0, a * e.log1p(b))),
    "sinc": lambda x: e.where(x == 0, 1.0, e.sin(x * 3.141592653589793) / (x * 3.141592653589793)),
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "trunc_divide": lambda a, b: e.trunc(a / b),
    "logaddexp": _logaddexp,
    "isinf": lambda x: e.abs(x) == float("inf"),
    "isfinite": lambda x: e.abs(x) < float("inf"),
    "i0e": lambda x: e.i0(x) * e.exp(-e.abs(x)),
    "i1e": lambda x: e.i1(x) * e.exp(-e.abs(x)),
    "entr": lambda x: e.where(x > 0, -x * e.log(x), e.where(x == 0, 0.0, e.where(x != x, x, -float("inf")))),
}
# The same for integers.
_INTEGER_REWRITES: dict[str, Callable[..., Expr]] = {
    "fmax": lambda a, b: e.where(a > b, a, b),
    "fmin": lambda a, b: e.where(a < b, a, b),
    "remainder": _remainder,
    "floor_divide": lambda a, b: e.where(
        e.land(e.fmod(a, b) != 0, (a < 0) != (b < 0)), e.trunc_divide(a, b) - 1, e.trunc_divide(a, b)
    ),
    "sign": lambda x: e.where(x > 0, 1, e.where(x < 0, -1, 0)),
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "trunc": lambda x: x,
    "round": lambda x: x,
    "isinf": lambda x: x != x,
    "isfinite": lambda x: x == x,
}


# Single instructions of the device, right to about 22 bits.
_LOG2_E = 1.4426950408889634


def _exp(x: Expr) -> Expr:
    return e.fast_exp2(x * _LOG2_E)


def _inverse(x: Any) -> Any:
    number: Any = x if not isinstance(x, Expr) else x.args[0] if x.op == "const" else None
    return 1.0 / float(number) if number else e.fast_inverse(x)


def _logistic(power: Expr) -> Expr:
    """1 / (1 + 2**-power)"""
    return e.fast_inverse(1.0 + e.fast_exp2(-power))


def _erf(x: Expr) -> Expr:
    """To 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    t = e.fast_inverse(1.0 + 0.3275911 * e.abs(x))
    sum_of = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    result = 1.0 - sum_of * _exp(-(x * x))
    return e.where(x < 0.0, -result, result)


def _gelu_of_eight_bits(x: Expr) -> Expr:
    """x times the normal distribution function as a logistic function of an odd polynomial: 1.7e-3 of the result where it is
    small, and less elsewhere."""
    square = x * x
    inner = 2.298804993864945 + square * (
        0.10907551186170938 + square * (-0.0013997646362949399 + square * 1.2523366124654181e-05)
    )
    return x * _logistic(x * inner)


# Where operands and results have eight bits.
_EIGHT_BITS: dict[str, Callable[..., Expr]] = {"gelu_erf": _gelu_of_eight_bits}

# Where operands and results have at most eleven bits, half the time of the library's is enough.
_REDUCED: dict[str, Callable[..., Expr]] = {
    "erf": _erf,
    "gelu_erf": lambda x: 0.5 * x * (1.0 + _erf(x * 0.7071067811865476)),
    "exp": _exp,
    "div": lambda a, b: a * _inverse(b),
    "sigmoid": lambda x: _logistic(x * _LOG2_E),
    "silu": lambda x: x * _logistic(x * _LOG2_E),
    "gelu_tanh": lambda x: x * _logistic(x * (2.302208198144325 + x * x * 0.1029432395800235)),
}
_ALWAYS = {"where", "land", "lor", "lnot", "maximum", "minimum", "abs", "real", "conj", "const", "arg", "load"}


def rewrite(op: str, floating: bool, bits: int = 24) -> Callable[..., Expr] | None:
    """What a function is written as, for operands and results of so many significant bits."""
    if bits <= 8 and op in _EIGHT_BITS:
        return _EIGHT_BITS[op]
    if bits <= 11 and op in _REDUCED:
        return _REDUCED[op]
    return (REWRITES if floating else _INTEGER_REWRITES).get(op)


def text(op: str, parts: list[str], floating: bool) -> str | None:
    """A call of a function; None when there is no such function."""
    if op in ("maximum", "minimum"):
        return f"tl.{op}({parts[0]}, {parts[1]}{', propagate_nan=tl.PropagateNan.ALL' if floating else ''})"
    if not floating:
        return {
            "abs": f"tl.abs({parts[0]})",
            "trunc_divide": f"{parts[0]} // {parts[-1]}",
            "fmod": f"{parts[0]} % {parts[-1]}",
        }.get(op)
    if op in _LANGUAGE:
        return f"{_LANGUAGE[op]}({parts[0]})"
    if op in _LIBRARY:
        return f"libdevice.{_LIBRARY[op]}({', '.join(parts)})"
    return None


def known(node: Any, floating: bool) -> bool:
    """Whether an expression can be printed."""
    if not isinstance(node, Expr) or node.op in ("const", "arg", "load"):
        return True
    if node.op == "div" and not floating:
        return False
    rewritten = rewrite(node.op, floating)
    if rewritten is not None:
        return known(rewritten(*node.args), floating)
    plain = node.op in _ALWAYS or node.op in INFIX or node.op in COMPARISONS or node.op in PREFIX
    return (plain or text(node.op, ["a", "b"], floating) is not None) and all(known(a, floating) for a in node.args)
