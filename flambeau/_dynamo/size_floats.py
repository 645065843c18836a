"""Floats that a program computes from sizes: `2.0 / x.shape[0]`, `n ** 0.5`, `math.log(n)`.

They are numbers of the graph, which computes them from the sizes it meets, so that no size is guarded. Integers made of them and what
they decide are guards on sizes where a float is a fraction of sizes; otherwise the sizes that it came from become numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau._dynamo.sizes import SymInt
from flambeau._dynamo.traced import TracedNumber
from flambeau.ops.symbolic.numbers import SymFloat, float_of, hint_of

if TYPE_CHECKING:
    from flambeau._dynamo.graph_builder import GraphBuilder

_ARITHMETIC = frozenset(
    (
        operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.neg, operator.abs, operator.pos,
        abs, float,
    )
)  # fmt: skip
_MATH = frozenset(f for f in vars(math).values() if callable(f) and f not in (math.floor, math.ceil, math.trunc))
_WHOLE = frozenset((math.floor, math.ceil, math.trunc))


def converts(function: Any) -> bool:
    """Whether a function takes floats alone, and would make them of sizes."""
    return function in _MATH or function is float


def symbolic(value: Any) -> Any:
    """A number as one of symbols, where it came from sizes alone; None for any other."""
    cls = type(value)
    if cls is TracedNumber:
        return value.of_sizes
    return value if cls in (int, float, SymInt) else None


def apply_to(function: Callable[..., Any], *args: Any) -> bool:
    """Whether a function of these numbers is a float of sizes."""
    if function not in _ARITHMETIC and function not in _MATH:
        return False
    numbers = [symbolic(a) for a in args]
    if any(n is None for n in numbers) or not any(isinstance(n, (SymInt, SymFloat)) for n in numbers):
        return False
    if any(isinstance(n, (SymInt, SymFloat)) and n.hint is None for n in numbers):
        return False
    try:
        result = function(*map(hint_of, numbers))
    except (ArithmeticError, ValueError, TypeError):
        return False
    return type(result) is float and _is_defined(function, numbers)


def _is_defined(function: Callable[..., Any], numbers: list[Any]) -> bool:
    """Whether the result is a float for other sizes as well; what the program relies on becomes a guard."""
    if function is operator.truediv:
        return _holds(operator.ne, numbers[1])
    if function is operator.pow and not isinstance(numbers[1], int):
        return _holds(operator.ge, numbers[0])
    return True


def _holds(compare: Callable[[Any, Any], Any], number: Any) -> bool:
    """How a number compares with zero, as a guard. A float that is no fraction of sizes says so when the graph runs."""
    if isinstance(number, SymFloat) and number.ratio is None:
        return bool(compare(number.hint, 0)) and compare is operator.ne
    return bool(compare(number, 0))


def call(builder: GraphBuilder, function: Callable[..., Any], *args: Any) -> TracedNumber:
    """The float that a function gives, as a number of the graph."""
    result = float_of(function, *map(symbolic, args))
    assert result.hint is not None
    node = builder.graph.call_function(function, tuple(builder.node_arguments(a) for a in args))
    node.meta["example_value"] = result.hint
    return TracedNumber(builder.tracer, node, result.hint, None, {}, of_sizes=result)


def is_whole(function: Any, args: tuple[Any, ...]) -> bool:
    return function in _WHOLE and len(args) == 1 and type(args[0]) is TracedNumber and args[0].of_sizes is not None


def compared(left: Any, right: Any) -> tuple[Any, Any]:
    """Two operands of a comparison: floats of sizes as symbols, where the other is a number of sizes, too."""
    a, b = symbolic(left), symbolic(right)
    return (left, right) if a is None or b is None else (a, b)
