"""Update records evaluated op by op: their definition on devices without the kernel, and where a step is differentiated.

Every record `_update_<name>_` of `ops/lists/updates.py` is also a function of that name here, with the same arguments.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.ops import expr
from flambeau.ops.evaluate import evaluate
from flambeau.ops.lists import updates
from flambeau.ops.record import RECORDS, Record


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


# Functions of numbers, which stay numbers: they are not rounded to the dtype of the tensors.
_NUMBERS: dict[str, Callable[..., Any]] = {
    "sqrt": _sqrt,
    "pow": pow,
    "maximum": max,
    "minimum": min,
    "abs": abs,
}
_CLAMPS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # of a tensor and a number


def _evaluate(node: expr.Expr, values: dict[str, Any], memo: dict[int, Any]) -> Any:
    if node.op in ("const", "arg") or id(node) in memo:
        return evaluate(node, values, memo)
    args = [_evaluate(a, values, memo) for a in node.args]  # type: ignore[arg-type]
    numbers = not any(isinstance(a, fl.Tensor) for a in args)
    if node.op == "where" and not isinstance(args[0], fl.Tensor):
        memo[id(node)] = args[1] if args[0] else args[2]
    elif node.op in _CLAMPS and isinstance(args[0], fl.Tensor) and not isinstance(args[1], fl.Tensor):
        memo[id(node)] = getattr(fl, _CLAMPS[node.op])(*args)
    elif numbers and node.op == "div" and args[1] == 0:
        memo[id(node)] = math.nan
    elif numbers and node.op in _NUMBERS:
        memo[id(node)] = _NUMBERS[node.op](*args)
    return evaluate(node, values, memo)


@functools.cache
def _expressions(name: str) -> tuple[Record, dict[str, expr.Expr]]:
    record = RECORDS[name]
    new = record.details["expr"](*(expr.arg(a.name) for a in record.schema.args))
    return record, {key: expr.lift(value) for key, value in new.items()}


def run(name: str, *lists: list[Any], **numbers: Any) -> None:
    """Apply an update record to lists of tensors, in place and differentiably. Numbers may be tensors, too."""
    record, new = _expressions(name)
    names = [a.name for a in record.schema.args]
    scalars = record.details["scalars"]
    for tensors in zip(*lists, strict=True):
        held = dict(zip(names, tensors))
        values = {key: t.item() if key in scalars and not t.requires_grad else t for key, t in held.items()} | numbers
        # What is written below may be saved for the derivative of a number that is a tensor.
        values |= {key: values[key].clone() for key in new if isinstance(values[key], fl.Tensor)}
        memo: dict[int, Any] = {}
        results = {key: _evaluate(node, values, memo) for key, node in new.items()}
        for key, value in results.items():
            if isinstance(value, fl.Tensor):
                held[key].copy_(value)
            else:
                held[key].fill_(value)


def __getattr__(name: str) -> Callable[..., None]:
    if name not in RECORDS or RECORDS[name].where != updates.__name__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.partial(run, name)
