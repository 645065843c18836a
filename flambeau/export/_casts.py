"""Mixed precision as casts: in graphs of single operators, what autocast converts is converted by operators of the graph."""

from __future__ import annotations

import functools
from typing import Any

import flambeau as fl
from flambeau import _C

__all__ = ["cast_call"]

_LOWER, _SINGLE, _WIDEST, _REFUSED, _FIRST, _OWN = range(1, 7)  # rules, as csrc/autograd/autocast.h numbers them


@functools.cache
def _rules(device: str) -> dict[str, int]:
    return dict(_C._autocast_rules(device))


def cast_call(op: Any, device: str) -> Any:
    """A function that converts the arguments of an operator as autocast does, and calls it; None where autocast is off for
    the type of device or leaves the operator alone."""
    if not _C._is_autocast_enabled(device):
        return None
    rule = _rules(device).get(op._full_name)
    return None if rule is None or rule == _REFUSED else functools.partial(_call, op, device, rule)


def _call(op: Any, device: str, rule: int, *args: Any, **kwargs: Any) -> Any:
    tensors = [t for t in fl.utils._pytree.tree_leaves((args, kwargs)) if _is_eligible(t)]
    dtype: Any = _C._get_autocast_dtype(device)
    if rule == _SINGLE or (rule == _WIDEST and any(t.dtype != dtype for t in tensors)):
        dtype = fl.float32
    elif rule == _FIRST and args and _is_eligible(args[0]):
        dtype = args[0].dtype
    elif rule in (_OWN, _FIRST):
        dtype = None

    def converted(value: Any) -> Any:
        return value.to(dtype) if dtype is not None and _is_eligible(value) and value.dtype != dtype else value

    args, kwargs = fl.utils._pytree.tree_map(converted, (args, kwargs))
    _C._set_autocast_enabled(device, False)
    try:
        return op(*args, **kwargs)
    finally:
        _C._set_autocast_enabled(device, True)


def _is_eligible(value: Any) -> bool:
    return isinstance(value, fl.Tensor) and value.is_floating_point() and value.dtype != fl.float64
