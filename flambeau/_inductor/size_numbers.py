"""Numbers of a program that may come from sizes, such as the divisor in the gradient of a mean.

A record holds them as plain numbers. As literals they would make another kernel for every size, and plans could not vary
them; so kernels take them as arguments, like sizes and strides, which plans know as functions of the sizes.
"""

from __future__ import annotations

from flambeau.ops.expr import ARITHMETIC, COMPARISONS, Expr

__all__ = ["size_in"]

_FRACTIONS = ARITHMETIC | COMPARISONS
# Operations in which a size may take part, by type. Integers are divided faster by literals.
_OPERATIONS = {"float": _FRACTIONS, "double": _FRACTIONS, "int64_t": _FRACTIONS - {"div"}}
_LARGEST = 1 << 40


def size_in(node: Expr, op: str, ctype: str) -> tuple[int, str] | None:
    """The size that an operand of an operation may come from, and the number as text to put the size's name into."""
    if node.op != "const" or node.args[1:] != ("operand",) or op not in _OPERATIONS.get(ctype, ()):
        return None
    value = node.args[0]
    if type(value) not in (int, float):
        return None
    if 3 <= value <= _LARGEST:  # type: ignore[operator]
        return (int(value), f"{ctype}({{}})") if value == int(value) else None  # type: ignore[call-overload]
    if 2.0 / _LARGEST <= value < 1:  # type: ignore[operator]
        size = round(2.0 / value)  # type: ignore[operator]
        return (size, f"{ctype}(2.0 / double({{}}))") if 2.0 / size == value else None  # 1.0 / n is one, too
    return None
