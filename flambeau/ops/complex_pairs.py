"""Complex numbers as pairs of real ones, for devices that have no complex type.

An expression over complex operands becomes one for the real and one for the imaginary part of its value, over operands
`name_re` and `name_im`. What has no rule here raises NotImplementedError, which is a matter of the device's policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import flambeau
from flambeau.ops.expr import Expr, arg, lift

__all__ = ["PART", "parts_of", "split"]

# The dtype of the parts.
PART = {
    flambeau.complex32: flambeau.float16,
    flambeau.complex64: flambeau.float32,
    flambeau.complex128: flambeau.float64,
}

Pair = tuple[Any, Any]  # expressions of the parts; the second is None for a real value


def parts_of(t: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a tensor, as windows on it."""
    real, imaginary = flambeau.view_as_real(t).unbind(-1)
    return real, imaginary


def _e(op: str, *args: Any) -> Any:
    return Expr(op, *map(lift, args))


def _imaginary(x: Pair) -> Any:
    return lift(0.0) if x[1] is None else x[1]


def _each(op: str) -> Callable[..., Pair]:
    """An operation on each part."""

    def rule(*xs: Pair) -> Pair:
        real = _e(op, *(x[0] for x in xs))
        return real, None if all(x[1] is None for x in xs) else _e(op, *map(_imaginary, xs))

    return rule


def _mul(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    if d is None:
        return _e("mul", a, c), None if b is None else _e("mul", b, c)
    if b is None:
        return _e("mul", a, c), _e("mul", a, d)
    return _e("sub", _e("mul", a, c), _e("mul", b, d)), _e("add", _e("mul", a, d), _e("mul", b, c))


def _div(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    if d is None:
        return _e("div", a, c), None if b is None else _e("div", b, c)
    # Both parts of the divisor are scaled, so that their squares are numbers.
    size = _e("maximum", _e("abs", c), _e("abs", d))
    scale = _e("where", _e("eq", size, 0.0), 1.0, size)
    c, d = _e("div", c, scale), _e("div", d, scale)
    square = _e("mul", scale, _e("add", _e("mul", c, c), _e("mul", d, d)))
    real, imaginary = _mul((a, b), (c, _e("neg", d)))
    return _e("div", real, square), _e("div", imaginary, square)


def _abs(x: Pair) -> Pair:
    return (_e("abs", x[0]) if x[1] is None else _e("hypot", *x)), None


def _angle(x: Pair) -> Pair:
    return _e("atan2", _imaginary(x), x[0]), None


def _exp(x: Pair) -> Pair:
    size = _e("exp", x[0])
    return _e("mul", size, _e("cos", x[1])), _e("mul", size, _e("sin", x[1]))


def _log(x: Pair) -> Pair:
    return _e("log", _e("hypot", *x)), _e("atan2", x[1], x[0])


def _sqrt(x: Pair) -> Pair:
    a, b = x
    size = _e("hypot", a, b)
    half = _e("sqrt", _e("div", _e("add", size, _e("abs", a)), 2.0))
    other = _e("where", _e("eq", half, 0.0), 0.0, _e("div", _e("abs", b), _e("mul", 2.0, half)))
    right = _e("ge", a, 0.0)
    return _e("where", right, half, other), _e("copysign", _e("where", right, other, half), b)


def _sin(x: Pair) -> Pair:
    a, b = x
    return _e("mul", _e("sin", a), _e("cosh", b)), _e("mul", _e("cos", a), _e("sinh", b))


def _cos(x: Pair) -> Pair:
    a, b = x
    return _e("mul", _e("cos", a), _e("cosh", b)), _e("neg", _e("mul", _e("sin", a), _e("sinh", b)))


def _sinh(x: Pair) -> Pair:
    a, b = x
    return _e("mul", _e("sinh", a), _e("cos", b)), _e("mul", _e("cosh", a), _e("sin", b))


def _cosh(x: Pair) -> Pair:
    a, b = x
    return _e("mul", _e("cosh", a), _e("cos", b)), _e("mul", _e("sinh", a), _e("sin", b))


def _tanh(x: Pair) -> Pair:
    """With the tangent t of the imaginary part: (tanh a + i t) / (1 + i t tanh a)."""
    h, t = _e("tanh", x[0]), _e("tan", x[1])
    return _div((h, t), (lift(1.0), _e("mul", t, h)))


def _where(condition: Pair, x: Pair, y: Pair) -> Pair:
    real = _e("where", condition[0], x[0], y[0])
    if x[1] is None and y[1] is None:
        return real, None
    return real, _e("where", condition[0], _imaginary(x), _imaginary(y))


def _both(op: str, join: str) -> Callable[..., Pair]:
    """A test of each part."""

    def rule(*xs: Pair) -> Pair:
        return _e(join, _e(op, *(x[0] for x in xs)), _e(op, *map(_imaginary, xs))), None

    return rule


_ONE: Pair = (lift(1.0), None)


def _sigmoid(x: Pair) -> Pair:
    return _div(_ONE, _each("add")(_ONE, _exp(_each("neg")(x))))


def _scaled_log(base: float) -> Callable[[Pair], Pair]:
    return lambda x: _div(_log(x), (lift(math.log(base)), None))


_RULES: dict[str, Callable[..., Pair]] = {
    "add": _each("add"), "sub": _each("sub"), "neg": _each("neg"), "mul": _mul, "div": _div, "where": _where,
    "conj": lambda x: (x[0], _e("neg", x[1])), "real": lambda x: (x[0], None), "imag": lambda x: (_imaginary(x), None),
    "make_complex": lambda x, y: (x[0], y[0]), "abs": _abs, "angle": _angle, "exp": _exp, "log": _log, "sqrt": _sqrt,
    "sin": _sin, "cos": _cos, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "tan": lambda x: _div(_sin(x), _cos(x)),
    "sigmoid": _sigmoid, "expm1": lambda x: _each("sub")(_exp(x), _ONE), "log2": _scaled_log(2.0), "log10": _scaled_log(10.0),
    "log1p": lambda x: _log(_each("add")(x, _ONE)), "rsqrt": lambda x: _div(_ONE, _sqrt(x)), "pow": lambda x, y: _exp(_mul(_log(_whole(x)), y)),
    "eq": _both("eq", "land"), "ne": _both("ne", "lor"), "isinf": _both("isinf", "lor"), "isfinite": _both("isfinite", "land"),
}  # fmt: skip


def _whole(x: Pair) -> Pair:
    return x[0], _imaginary(x)


def split(expr: Any, complex_names: Collection[str]) -> Pair:
    """The parts of an expression, in which these arguments are complex; the second is None where its value is real."""
    known: dict[int, Pair] = {}

    def visit(node: Any) -> Pair:
        if id(node) not in known:
            known[id(node)] = of(node)
        return known[id(node)]

    def of(node: Any) -> Pair:
        if node.op == "arg":
            name = node.args[0]
            return (arg(f"{name}_re"), arg(f"{name}_im")) if name in complex_names else (node, None)
        if node.op == "const":
            value = node.args[0]
            return (lift(value.real), lift(value.imag)) if isinstance(value, complex) else (node, None)
        operands = [visit(a) for a in node.args]
        rule = _RULES.get(node.op)
        if (rule is not None and any(x[1] is not None for x in operands)) or node.op == "make_complex":
            return rule(*operands)  # type: ignore[misc]
        if any(x[1] is not None for x in operands):
            raise NotImplementedError(f"complex {node.op}")
        return _e(node.op, *(x[0] for x in operands)), None

    return visit(expr)


# ---------------------------------------------------------------- primitives


def joined(real: Any, imaginary: Any) -> Any:
    return flambeau.view_as_complex(flambeau.stack([real, imaginary], -1))


def _expect_complex(name: str, *tensors: Any) -> None:
    if not any(t.is_complex() for t in tensors):
        raise NotImplementedError(f"[{name}] expected a kernel, for it is a primitive")


def by_parts(name: str, places: Collection[int]) -> Callable[..., Any]:
    """The definition of a primitive of complex tensors at some places that is linear in them together: for each part."""

    def make(*args: Any, **kwargs: Any) -> Any:
        _expect_complex(name, args[0])
        op = flambeau._C._operator_object(name)
        parts = zip(*(parts_of(args[at]) for at in places))
        values = (dict(zip(places, part)) for part in parts)
        return joined(*(op(*(chosen.get(at, a) for at, a in enumerate(args)), **kwargs) for chosen in values))

    return make


def product(name: str) -> Callable[..., Any]:
    """The definition of a primitive that is linear in each of two tensors, of which one is complex."""

    def make(x: Any, y: Any) -> Any:
        _expect_complex(name, x, y)
        op = flambeau._C._operator_object(name)
        (a, b), (c, d) = (tuple(p.contiguous() for p in parts_of(t)) for t in (x, y))
        return joined(op(a, c) - op(b, d), op(a, d) + op(b, c))

    return make
