"""Numbers of a program that may come from sizes, such as the divisor in the gradient of a mean.

A record holds them as plain numbers. As literals they would make another kernel for every size, and plans could not vary
them; so kernels take them as arguments, like sizes and strides, which plans know as functions of the sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from flambeau.ops.expr import ARITHMETIC, COMPARISONS, Expr

__all__ = ["size_in"]

_FRACTIONS = ARITHMETIC | COMPARISONS | {"minimum", "maximum"}
# Operations in which a size may take part, by type. Integers are divided faster by literals.
_OPERATIONS = {"float": _FRACTIONS, "double": _FRACTIONS, "int64_t": _FRACTIONS - {"div"}}
_LARGEST = 1 << 40
_WIDEST = 1 << 53  # integers up to it are exact as doubles
_EXACT = 1 << 32  # of integers under a root or logarithm, which are recognized by a rounded value
_ROUNDED = 2.0**-50  # relative error of what programs compute by other formulas
_SCALE = 720720  # numerators and denominators of fractions of sizes divide it
_SQUARES = 144  # those of fractions under a root


def size_in(node: Expr, op: str, ctype: str) -> tuple[int, str] | None:
    """The size that an operand of an operation may come from, and the number as text to put the size's name into."""
    if node.op != "const" or node.args[1:] != ("operand",) or op not in _OPERATIONS.get(ctype, ()):
        return None
    value = node.args[0]
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        return None
    size_text = _size_of(abs(value), ctype)  # type: ignore[arg-type]
    return (size_text[0], f"{'-' if value < 0 else ''}{ctype}({size_text[1]})") if size_text else None  # type: ignore[operator]


def _size_of(value: float, ctype: str) -> tuple[int, str] | None:
    """A positive number as a size, and the text of the number that it makes."""
    if value == math.floor(value):
        return (int(value), "{}") if 3 <= value <= _LARGEST else None
    if ctype == "int64_t" or not 2.0 / _LARGEST <= value <= _LARGEST:
        return None
    for form in _FORMS:
        size = round(form.size(value))
        if 3 <= size <= form.largest and abs(form.number(size) - value) <= form.error * value:
            return size, form.text
    return None


class _Form(NamedTuple):
    """A number as a function of a size, its inverse, and its text."""

    number: Callable[[int], float]
    size: Callable[[float], float]
    text: str
    largest: int = _EXACT
    error: float = _ROUNDED


_FORMS = (
    _Form(lambda n: _SCALE / n, lambda v: _SCALE / v if v < 1 else 0.0, f"{_SCALE}.0 / double({{}})", _WIDEST, 0.0),
    _Form(lambda n: n / _SCALE, lambda v: v * _SCALE, f"double({{}}) / {_SCALE}.0", _WIDEST, 0.0),
    _Form(
        lambda n: math.sqrt(n / _SQUARES),
        lambda v: v * v * _SQUARES if v > 1 else 0.0,
        f"__builtin_sqrt(double({{}}) / {_SQUARES}.0)",
    ),
    _Form(
        lambda n: math.sqrt(_SQUARES / n),
        lambda v: _SQUARES / (v * v) if v < 1 else 0.0,
        f"__builtin_sqrt({_SQUARES}.0 / double({{}}))",
    ),
    _Form(math.log, lambda v: math.exp(v) if v < 22 else 0.0, "__builtin_log(double({}))"),
    _Form(
        lambda n: 1 / math.log(n), lambda v: math.exp(1 / v) if v > 1 / 22 else 0.0, "1.0 / __builtin_log(double({}))"
    ),
    _Form(math.log2, lambda v: 2.0**v if v < 32 else 0.0, "__builtin_log2(double({}))"),
    _Form(
        lambda n: 1 / math.log2(n), lambda v: 2.0 ** (1 / v) if v > 1 / 32 else 0.0, "1.0 / __builtin_log2(double({}))"
    ),
)
