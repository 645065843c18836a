"""Symbolic numbers, as far as eager code meets them: types nothing is an instance of, and their functions on numbers.

Shapes are plain integers here, so code that asks `isinstance(n, SymInt)` is told no, and `sym_max(a, b)` and its
relatives work on the numbers themselves.
"""

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Symbol:
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"[{cls.__name__}] expected a plain number, got a symbolic one, which only a tracer can make")


class SymInt(_Symbol):
    """A size known only as a symbol."""


class SymFloat(_Symbol):
    """A float known only as a symbol."""


class SymBool(_Symbol):
    """A condition known only as a symbol."""


def sym_float(a: Any) -> float:
    return builtins.float(a)


def sym_int(a: Any) -> int:
    """The integer part of a number."""
    return builtins.int(a)


def sym_not(a: Any) -> bool:
    return not a


def _chosen(name: str, choose: Any, a: Any, b: Any) -> Any:
    for x in (a, b):
        if not isinstance(x, (builtins.int, builtins.float)) and not hasattr(x, "__float__"):
            raise AssertionError(f"[{name}] expected numbers, got {type(x).__name__}")
    # As for tensors, one float makes the result a float.
    floating = isinstance(a, builtins.float) or isinstance(b, builtins.float)
    return builtins.float(choose(a, b)) if floating else choose(a, b)


def sym_max(a: Any, b: Any) -> Any:
    return _chosen("sym_max", max, a, b)


def sym_min(a: Any, b: Any) -> Any:
    return _chosen("sym_min", min, a, b)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f."""
    if not isinstance(b, builtins.bool):
        raise AssertionError(f"[sym_ite] expected a bool condition, got {type(b).__name__}")
    if type(t) is not type(f):
        raise AssertionError(f"[sym_ite] expected choices of one type, got {type(t).__name__} and {type(f).__name__}")
    return t if b else f


def sym_sum(*args: Any) -> Any:
    """The sum of numbers, given one by one or as a list."""
    if len(args) == 1 and isinstance(args[0], (list, tuple)):
        args = tuple(args[0])
    return sum(args)
