"""Lowering operators that put tensors beside each other or beside constants: `cat`, padding, the derivative of a slice.

The result is one loop. Where an element comes from is decided by its index (`before(index, n)`, `from(index, n)`), and each
operand is read only where it is (`guard(condition, load)`, which is zero elsewhere). So what follows fuses with it, and an operand that a pointwise
loop makes is computed there instead of being written first: the halves of a rotary embedding, say.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall
from flambeau.backends import records
from flambeau.ops import expr as e

__all__ = ["cat", "guarded_loads", "pad", "slice_backward"]

_MOST_OPERANDS = 4  # of one loop
_MOST_LOADS = 3  # of an operand that is computed in the loop
_FAR = 64  # items behind which a loop that makes an operand is not looked for


def guarded_loads(expr: Any) -> set[int]:
    """The loads of an expression that are read only under a condition, so that their accesses may leave their memory."""
    if not isinstance(expr, e.Expr):
        return set()
    if expr.op == "guard":
        load: Any = expr.args[1]
        return {load.args[0]}
    return set().union(*(guarded_loads(a) for a in expr.args))


class _Joined:
    """A loop over a result under construction."""

    def __init__(self, lowering: Any, result: RecordedValue) -> None:
        self.lowering = lowering
        self.result = result
        self.reads: list[Access] = []
        self.indices: dict[int, e.Expr] = {}

    def load(self, access: Access) -> e.Expr:
        self.reads.append(access)
        return e.Expr("load", len(self.reads) - 1)

    def index(self, dim: int) -> e.Expr:
        """The index of an element along a dimension."""
        if dim not in self.indices:
            strides = tuple(int(d == dim and n != 1) for d, n in enumerate(self.result.size))
            self.indices[dim] = self.load(Access(Buffer(-1, fl.int64, (), (), "index"), 0, strides))
        return self.indices[dim]

    def within(self, starts: dict[int, int], sizes: Sequence[int]) -> e.Expr | None:
        """The condition under which an element lies in a box; None where it always does."""
        tests = []
        for dim, start in starts.items():
            if start > 0:
                tests.append(e.Expr("from", self.index(dim), start))
            if start + sizes[dim] < self.result.size[dim]:
                tests.append(e.Expr("before", self.index(dim), start + sizes[dim]))
        return functools.reduce(e.land, tests) if tests else None

    def operand(self, value: RecordedValue, starts: dict[int, int], condition: e.Expr | None) -> e.Expr:
        """The element of an operand that lies at `starts` in the result: read there, or computed."""
        access = self.lowering.read(value)
        loop = _producer(self.lowering, value, access)
        if loop is None:
            return self._guarded(access, starts, condition)
        loads = [self._guarded(read, starts, condition) for read in loop.reads]
        computed: e.Expr = _with_loads(loop.expr, loads)
        return computed

    def _guarded(self, access: Access, starts: dict[int, int], condition: e.Expr | None) -> e.Expr:
        shift = sum(start * access.strides[dim] for dim, start in starts.items())
        load = self.load(Access(access.buffer, access.offset - shift, access.strides))
        return load if condition is None else e.Expr("guard", condition, load)


def _producer(lowering: Any, value: RecordedValue, access: Access) -> Loop | None:
    """The pointwise loop that makes an operand, if it can as well run where the operand is read."""
    for item in reversed(lowering.items[-_FAR:]):
        if isinstance(item, OperatorCall):
            if item.written:
                return None
            continue
        if item.write.buffer.memory is not item.write.buffer:
            return None  # something is written in place, maybe what the loop reads
        if item.write.buffer is not access.buffer:
            continue
        plain = all(a.buffer.source not in ("index", "random") for a in item.reads) and not guarded_loads(item.expr)
        same = (item.domain, item.write.offset, item.write.strides) == (value.size, access.offset, access.strides)
        alike = item.compute is value.dtype and item.write.buffer.dtype is value.dtype
        return item if item.reduce is None and plain and same and alike and len(item.reads) <= _MOST_LOADS else None
    return None


def _with_loads(node: Any, loads: list[e.Expr]) -> Any:
    if not isinstance(node, e.Expr):
        return node
    if node.op == "load":
        return loads[node.args[0]]  # type: ignore[call-overload]
    return e.Expr(node.op, *(_with_loads(a, loads) for a in node.args))


def _fits(lowering: Any, call: RecordedCall) -> bool:
    result = call.results[0] if len(call.results) == 1 else None
    return (
        lowering.printer.guards
        and result is not None
        and not call.writes
        and result.dtype is not fl.bool
        and all(v.dtype is result.dtype for v in call.reads)
        and bool(lowering._computes(call))
    )


def cat(lowering: Any, call: RecordedCall) -> bool:
    """cat(tensors, dim)"""
    arguments = records.bind(call.op, call.args, call.kwargs)
    tensors, dim = arguments["tensors"], arguments["dim"]
    if not _fits(lowering, call) or not isinstance(dim, int) or not 1 < len(tensors) <= _MOST_OPERANDS:
        return False
    result = call.results[0]
    assert result is not None
    dim %= len(result.size)
    joined = _Joined(lowering, result)
    start, parts = 0, []
    for value in tensors:
        condition = joined.within({dim: start}, value.size)
        parts.append((joined.operand(value, {dim: start}, condition), start))
        start += value.size[dim]
    body, first = parts[-1]
    for part, start in reversed(parts[:-1]):
        body, first = e.where(e.Expr("before", joined.index(dim), first), part, body), start
    return bool(lowering._store("cat", (result, False), body, joined.reads, result.dtype))


def pad(lowering: Any, call: RecordedCall) -> bool:
    """constant_pad_nd(self, pad, value)"""
    arguments = records.bind(call.op, call.args, call.kwargs)
    source, amounts, value = arguments["self"], list(arguments["pad"]), arguments.get("value", 0)
    if not _fits(lowering, call) or not isinstance(value, (int, float)) or min(amounts, default=0) < 0:
        return False
    rank = len(source.size)
    starts = {rank - 1 - i: amounts[2 * i] for i in range(len(amounts) // 2)}
    return _surrounded(lowering, call, source, starts, value)


def slice_backward(lowering: Any, call: RecordedCall) -> bool:
    """_slice_backward(grad, input_sizes, dim, start, end, step): the gradient, with zeros around it."""
    gradient, sizes, dim, start, _, step = call.args
    start = 0 if start is None else start
    if not _fits(lowering, call) or step != 1 or not isinstance(start, int) or call.kwargs:
        return False
    dim %= len(sizes)
    start = min(start + sizes[dim] if start < 0 else start, sizes[dim])
    return _surrounded(lowering, call, gradient, {dim: start}, 0)


def _surrounded(lowering: Any, call: RecordedCall, source: RecordedValue, starts: dict[int, int], value: Any) -> bool:
    """A tensor inside of a larger one whose other elements are the same number."""
    result = call.results[0]
    assert result is not None
    joined = _Joined(lowering, result)
    condition = joined.within(starts, source.size)
    body = joined.operand(source, starts, condition)
    if condition is not None:
        body = e.where(condition, body, value)
    return bool(lowering._store(call.op._opname, (result, False), body, joined.reads, result.dtype))
