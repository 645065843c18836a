"""Expressions evaluated op by op on tensors.

The fused kernels serve ordinary forward and backward; this walk serves gradients of gradients, where each step of a
derivative has to be recorded itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import flambeau as fl
from flambeau.ops import expr
from flambeau.ops.record import find

_PYTHON: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "trigamma": lambda x: fl.polygamma(1, x),
}
_NAMES = {
    "land": "logical_and",
    "lor": "logical_or",
    "lnot": "logical_not",
    "bitnot": "bitwise_not",
    "conj": "conj_physical",
    "make_complex": "complex",
    "digamma": "digamma",
    "gelu_erf": "_ops.gelu",
    "silu": "_ops.silu",
    "mish": "_ops.mish",
    "ipow": "pow",
    "trunc_divide": "trunc",
}


def _function(name: str) -> Any:
    """The tensor op that stands for a function of the expression language."""
    if name in _PYTHON:
        return _PYTHON[name]
    path = _NAMES.get(name, name)
    for module in (fl, fl.special, fl._ops):
        function: Any = module
        for part in path.split("."):
            function = getattr(function, part, None)
        if function is not None:
            return function
    raise NotImplementedError(f"[expr] expected a function with a tensor op, got {name!r}")


def evaluate(node: expr.Expr, values: dict[str, Any], memo: dict[int, Any] | None = None) -> Any:
    """The value of an expression with tensors and numbers for its arguments."""
    memo = {} if memo is None else memo
    if id(node) in memo:
        return memo[id(node)]
    if node.op == "const":
        return node.args[0]
    if node.op == "arg":
        return values[str(node.args[0])]
    args = [evaluate(a, values, memo) for a in cast(tuple[expr.Expr, ...], node.args)]
    if node.op == "where":
        cond, a, b = args
        like: Any = next((x for x in (a, b, *values.values()) if isinstance(x, fl.Tensor)), None)
        a, b = (
            x if isinstance(x, fl.Tensor) else fl.scalar_tensor(x, dtype=like.dtype, device=like.device) for x in (a, b)
        )
        if isinstance(cond, fl.Tensor):
            result = fl.where(cond if cond.dtype == fl.bool else cond != 0, a, b)
        else:
            result = (a if cond else b).expand(fl.broadcast_shapes(a.shape, b.shape))
    elif node.op in _PYTHON:
        result = _PYTHON[node.op](*args)
    else:
        result = _call(_function(node.op), args, values)
    memo[id(node)] = result
    return result


def _call(function: Callable[..., Any], args: list[Any], values: dict[str, Any]) -> Any:
    """A tensor op on tensors and numbers; numbers become tensors where the op takes nothing else."""
    if any(isinstance(a, fl.Tensor) for a in args):
        try:
            return function(*args)
        except TypeError:
            pass
    like = next(x for x in (*args, *values.values()) if isinstance(x, fl.Tensor) and x.dtype != fl.bool)
    lifted = [
        a
        if isinstance(a, fl.Tensor)
        else fl.scalar_tensor(a, dtype=fl.bool if isinstance(a, bool) else like.dtype, device=like.device)
        for a in args
    ]
    return function(*lifted)


def by_parts(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A pointwise op as a series of others, from its record's expression; NotImplemented where it has none for the case."""
    record = find(name)
    if record is None or record.kind != "pointwise":
        return NotImplemented
    names = [a.name for a in record.schema.args]
    values = dict(zip(names, args)) | kwargs
    for argument in record.schema.args:
        values.setdefault(argument.name, argument.default)
    select, table = record.details["select"], record.details["table"]
    tensors = [x for x in values.values() if isinstance(x, fl.Tensor)]
    key = values[select] if select else "c" if any(x.is_complex() for x in tensors) else "f"
    expression = table.get(key, table.get(""))
    if expression is None or not any(x.is_floating_point() for x in tensors):
        return NotImplemented
    tree = expr.lift(expression(*(expr.arg(n) for n in names if n != select)))
    if tree.op in ("arg", "const") or (tree.op == record.schema.name and len(tree.args) == len(names)):
        return NotImplemented
    return evaluate(tree, values)


# Piecewise linear functions, whose gradient is a step function: its own derivative is zero and not undefined, so that the
# weights get a zero gradient from a gradient penalty, instead of none, and second derivatives exist.
_STEPS = {
    "relu", "relu6", "leaky_relu", "threshold", "hardtanh", "hardshrink", "softshrink", "_prelu_kernel", "abs",
}  # fmt: skip


def _depending(result: Any, on: Any) -> Any:
    """The same values, as a function of another tensor too, on which they depend with a derivative of zero."""
    if not isinstance(on, fl.Tensor) or not on.requires_grad or on.shape != result.shape or on.dtype != result.dtype:
        return result
    return fl.where(fl.ones((), dtype=fl.bool, device=result.device), result, on)


def _as_in_the_kernel(x: Any, dtype: Any) -> Any:
    """An operand in the dtype of the result, in which kernels compute: integers do not wrap, booleans can be
    subtracted, and real numbers have complex logarithms beside complex ones. Python scalars take that dtype anyway."""
    if not isinstance(x, fl.Tensor) or x.is_complex() or x._is_wrapped_number():
        return x
    return x if x.is_floating_point() and not dtype.is_complex else x.to(dtype)


def gradient(name: str, operand: int, g: Any, args: tuple[Any, ...], out: Any) -> Any:
    """The gradient of one operand of a pointwise op, from its record's derivative."""
    record = find(name)
    if record is None:
        raise LookupError(f"[expr] expected an operator with a record, got {name}")
    select = record.details["select"]
    names = [a.name for a in record.schema.args]
    values = {n: _as_in_the_kernel(x, g.dtype) for n, x in zip(names, args)}
    complex_valued = any(isinstance(x, fl.Tensor) and x.is_complex() for x in (g, out, *args))
    vjp = record.vjp
    conjugates = isinstance(vjp, dict) and not select and "c" in vjp  # by itself
    if isinstance(vjp, dict):
        vjp = vjp[values[select]] if select else vjp.get("c" if complex_valued else "f", vjp.get(""))
    holomorphic = complex_valued and not conjugates and "nonholomorphic" not in record.tags
    values.update(g=g.conj_physical() if holomorphic and g.is_complex() else g, out=out)
    leaves = [expr.arg("g"), *(expr.arg(n) for n in names if n != select), expr.arg("out")]
    derivative = vjp(*leaves)[operand]
    if derivative is None:
        return None
    result = evaluate(expr.lift(derivative), values)
    if not isinstance(result, fl.Tensor):
        return None
    if name in _STEPS:
        result = _depending(result, args[0] if args[0] is not None else out)
    return result.conj_physical() if holomorphic and result.is_complex() else result
