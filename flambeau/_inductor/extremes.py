"""Lowering the place of an extreme: the largest of keys that hold a number and, below it, how early it comes.

A decoded word's scores are tens of thousands, in one row: as a loop they are divided over several programs, and nothing
waits for a library call.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall
from flambeau._inductor.ir import Access, Buffer, Loop, Reduce
from flambeau.ops import expr as e

__all__ = ["argmax", "argmin"]

_FLOATS = (fl.float32, fl.bfloat16, fl.float16)
_LOW = (1 << 32) - 1


def argmax(lowering: Any, call: RecordedCall) -> bool:
    """argmax(self, dim, keepdim)"""
    return _place(lowering, call, 1)


def argmin(lowering: Any, call: RecordedCall) -> bool:
    """argmin(self, dim, keepdim)"""
    return _place(lowering, call, -1)


def _place(lowering: Any, call: RecordedCall, sign: int) -> bool:
    """Among equal numbers the first counts, and anything that is no number before all others."""
    source, result = call.args[0], call.results[0]
    dim = call.args[1] if len(call.args) > 1 else None
    if not lowering.printer.places or result is None or call.kwargs:
        return False
    if type(dim) is not int or not source.size or source.dtype not in _FLOATS or math.prod(source.size) >= 1 << 31:
        return False
    if 0 in source.size:
        return False
    dim %= len(source.size)
    along = tuple(int(d == dim and n != 1) for d, n in enumerate(source.size))
    reads = [lowering.read(source), Access(Buffer(-1, fl.int64, (), (), "index"), 0, along)]
    key = e.Expr("order_key", e.Expr("load", 0), sign)
    body = key * (1 << 32) + (_LOW - e.Expr("load", 1))
    a, b = e.arg("a"), e.arg("b")
    is_kept = tuple(d != dim for d in range(len(source.size)))
    reduce = Reduce("lowest", e.call("maximum", a, b), _LOW - e.call("bitand", a, _LOW), fl.int64, is_kept)
    buffer = lowering.result(result)
    own = iter(0 if n == 1 else s for n, s in zip(result.size, result.stride))
    keeps_dims = len(result.size) == len(source.size)
    strides = []
    for k in is_kept:
        stride = next(own) if k or keeps_dims else 0
        strides.append(stride if k else 0)
    write = Access(buffer, result.offset, tuple(strides))
    lowering.items.append(Loop(call.op._opname, source.size, body, reads, write, fl.int64, reduce))
    return True
