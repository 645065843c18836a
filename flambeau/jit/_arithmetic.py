"""Numbers as programs compute them: integers of 64 bits that wrap around, floats that become infinite or NaN instead of raising, and their text.

Python's own arithmetic is used where it gives the same results; NumPy answers where Python raises.
"""

from __future__ import annotations

import cmath
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

LOWEST, HIGHEST = -(2**63), 2**63 - 1
_MODULUS = 2**64
_SPECIFIER = re.compile("%[^a-zA-Z%]*([a-zA-Z%])")


def wrap(value: int) -> int:
    """The integer of 64 bits that has the lowest bits of a value."""
    return (value + 2**63) % _MODULUS - 2**63


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function on numbers and containers whose integer results wrap around."""

    def call(*args: Any) -> Any:
        result = function(*args)
        if type(result) is int and not LOWEST <= result <= HIGHEST:
            return wrap(result)
        return result

    return call


def to_integer(value: Any) -> int:
    """A number cut to an integer; floats beyond 64 bits give the lowest integer, as processors do."""
    if not isinstance(value, float):
        return int(value)
    return int(value) if LOWEST <= value <= HIGHEST else LOWEST


def shift_left(value: int, count: int) -> int:
    if not 0 <= count < 64:
        raise RuntimeError(f"[jit] expected to shift by 0 to 63 bits, got {count}")
    return wrap(value << count)


def true_divide(a: Any, b: Any) -> Any:
    if b != 0:
        return a / b
    if isinstance(a, complex) or isinstance(b, complex):
        return complex(_numpy_result("true_divide", complex(a), complex(b)))
    return _numpy_result("true_divide", float(a), float(b))


def floor_divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    quotient = true_divide(a, b)
    return float(math.floor(quotient)) if math.isfinite(quotient) else quotient


def modulo(a: Any, b: Any) -> Any:
    return math.nan if b == 0 and (isinstance(a, float) or isinstance(b, float)) else a % b


def quotient_and_rest(a: Any, b: Any) -> tuple[Any, Any]:
    return (math.nan, math.nan) if b == 0 and isinstance(a * b, float) else divmod(a, b)


def power(a: Any, b: Any) -> Any:
    if isinstance(a, complex) or isinstance(b, complex):
        return a**b
    return _real_power(float(a), float(b))


def integer_power(a: int, b: int) -> int:
    return wrap(pow(a, b, _MODULUS)) if b >= 0 else to_integer(power(a, b))


def factorial(n: int) -> int:
    if n < 0:
        raise RuntimeError("factorial() not defined for negative values")
    return wrap(math.factorial(n)) if n < 66 else 0


def pop_first(items: dict[Any, Any]) -> tuple[Any, Any]:
    """Dictionaries of scripts give the pair that was set first."""
    if not items:
        raise RuntimeError("popitem(): dictionary is empty")
    key = next(iter(items))
    return key, items.pop(key)


def total(items: list[Any]) -> Any:
    result = sum(items)
    return wrap(result) if type(result) is int else result


def smaller(a: Any, b: Any) -> Any:
    """NaN is not below anything, so that the second value is the result beside it."""
    return _common(a if a < b else b, a, b)


def larger(a: Any, b: Any) -> Any:
    return _common(a if a > b else b, a, b)


def _common(result: Any, a: Any, b: Any) -> Any:
    return float(result) if isinstance(a, float) or isinstance(b, float) else result


def rounded(x: Any) -> float:
    return float(round(x)) if math.isfinite(x) else x


# ---------------------------------------------------------------------------------------------- functions of the math module


def _numpy_result(name: str, *args: Any) -> Any:
    import numpy

    function = getattr(numpy, name, None) or getattr(numpy, f"arc{name[1:]}")  # as older releases name inverses
    with numpy.errstate(all="ignore"):
        return function(*args).item()


def real_function(name: str) -> Callable[..., Any]:
    """A function of the math module without its exceptions."""
    function = getattr(math, name)

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except (ValueError, OverflowError, ZeroDivisionError):
            return _numpy_result(name, *map(float, args))

    return call


def real_or_complex(name: str) -> Callable[..., Any]:
    """A function that the math module and the cmath module both have."""
    real, complex_function = real_function(name), getattr(cmath, name, None)

    def call(x: Any, *rest: Any) -> Any:
        return complex_function(x) if isinstance(x, complex) and complex_function is not None else real(x, *rest)

    return call


def logarithm(x: Any, base: Any = None) -> Any:
    if isinstance(x, complex) or isinstance(base, complex):
        return cmath.log(x) if base is None else cmath.log(x, base)
    return _real_logarithm(x) if base is None else true_divide(_real_logarithm(x), _real_logarithm(base))


def gamma(x: float) -> float:
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.copysign(math.inf, x) if x == 0 else math.nan


def log_gamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):
        return math.inf


def _real_power(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except (ValueError, OverflowError):
        return _numpy_result("float_power", a, b)


_real_logarithm = real_function("log")


# ---------------------------------------------------------------------------------------------- text


def to_text(value: Any) -> str:
    """A value as `str`, `format` and `print` show it in a program."""
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, complex):
        imaginary = _float_text(value.imag)
        return f"{_float_text(value.real)}{'' if imaginary[0] == '-' else '+'}{imaginary}j"
    if isinstance(value, tuple):
        return f"({', '.join(map(to_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(map(to_text, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{to_text(k)}: {to_text(v)}' for k, v in value.items())}}}"
    return str(value)


def _float_text(value: float) -> str:
    """Whole numbers end in a point; others have all the digits that a float may need."""
    if not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    if value.is_integer() and abs(value) < 2**63:
        return f"{int(value)}."
    return f"{value:.17g}"


def format_text(text: str, *values: Any) -> str:
    """Each `{}` is replaced by the next value; other braces are text."""
    parts = text.split("{}")
    if len(parts) - 1 > len(values):
        raise RuntimeError(f"Too few arguments for format string: {text}")
    filled = [part + to_text(value) for part, value in zip(parts[:-1], values)]
    return "".join([*filled, parts[-1]])


def percent_text(text: str, *values: Any) -> str:
    """`%` of a string: `%s` shows values as programs do, other specifiers as Python does."""
    if len(values) == 1 and isinstance(values[0], tuple):
        values = values[0]
    kinds = [kind for kind in _SPECIFIER.findall(text) if kind != "%"]
    return text % tuple(to_text(v) if kind == "s" else v for v, kind in itertools.zip_longest(values, kinds))
