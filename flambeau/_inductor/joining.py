"""Lowering operators that put tensors beside each other or beside constants: `cat`, padding, the derivative of a slice.

The result is one loop. Where an element comes from is decided by its index (`before(index, n)`, `from(index, n)`), and each
operand is read only where it is (`guard(condition, load)`, which is zero elsewhere), or two operands that lie in one tensor are
one load with two addresses (`either(condition, load, load)`). So what follows fuses with it, and an operand that pointwise
loops make is computed there instead of being written first: the halves of a rotary embedding, say, after the norm of their row.
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

__all__ = ["cat", "guarded_loads", "pad", "second_loads", "slice_backward"]

_MOST_OPERANDS = 4  # of one loop
_MOST_LOADS = 3  # of an operand that is computed in the loop
_MOST_LEAVES = 6  # the same for one that several loops compute
_FLOATS = (fl.float32, fl.bfloat16, fl.float16)  # that kernels compute in the same type
_FAR = 64  # items behind which a loop that makes an operand is not looked for


def guarded_loads(expr: Any) -> set[int]:
    """The loads of an expression that are read only under a condition, so that their accesses may leave their memory."""
    if not isinstance(expr, e.Expr):
        return set()
    if expr.op in ("guard", "either", "row"):
        loads: Any = [a for a in expr.args[1:] if isinstance(a, e.Expr)]
        return {load.args[0] for load in loads}
    return set().union(*(guarded_loads(a) for a in expr.args))


def second_loads(expr: Any) -> set[int]:
    """The loads of an expression that are the other address of an earlier one."""
    if not isinstance(expr, e.Expr):
        return set()
    if expr.op == "either":
        load: Any = expr.args[2]
        return {load.args[0]}
    return set().union(*(second_loads(a) for a in expr.args))


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

    def operand(self, value: RecordedValue, starts: dict[int, int]) -> tuple[e.Expr, list[Access]]:
        """The element of an operand that lies at `starts` in the result, as an expression of the elements it is computed from."""
        expr, reads = _computed(self.lowering, self.lowering.read(value), value.size)
        shifts = [sum(start * read.strides[dim] for dim, start in starts.items()) for read in reads]
        return expr, [Access(r.buffer, r.offset - shift, r.strides) for r, shift in zip(reads, shifts)]

    def guarded(self, expr: e.Expr, reads: list[Access], condition: e.Expr | None) -> e.Expr:
        """The operand where a condition holds."""
        loads = [self.load(read) for read in reads]
        if condition is not None:
            loads = [e.Expr("guard", condition, load) for load in loads]
        return _with_loads(expr, loads)  # type: ignore[no-any-return]

    def of_two(self, operands: list[tuple[e.Expr, list[Access]]], dim: int, first: int) -> e.Expr:
        """The one operand at the first indices of a dimension, else the other. What both read of one tensor is one load."""
        (one, one_reads), (other, other_reads) = operands
        condition = e.Expr("before", self.index(dim), first)
        loads: dict[int, e.Expr] = {}
        rest: list[e.Expr] = []
        for read in one_reads:
            alike = (i for i, a in enumerate(other_reads) if i not in loads and _lie_alike(a, read))
            at = next(alike, None)
            if at is None:
                rest.append(e.Expr("guard", condition, self.load(read)))
            elif other_reads[at] == read:
                loads[at] = self.load(read)
                rest.append(loads[at])
            else:
                loads[at] = e.Expr("either", condition, self.load(read), self.load(other_reads[at]))
                rest.append(loads[at])
        for at, read in enumerate(other_reads):
            if at not in loads:
                loads[at] = e.Expr("guard", e.Expr("from", self.index(dim), first), self.load(read))
        second = _with_loads(other, [loads[at] for at in range(len(other_reads))])
        return e.where(condition, _with_loads(one, rest), second)


def _lie_alike(a: Access, b: Access) -> bool:
    return a.buffer is b.buffer and a.strides == b.strides


def _computed(lowering: Any, access: Access, size: tuple[int, ...]) -> tuple[e.Expr, list[Access]]:
    """An element of a window as an expression of what the pointwise loops that make it read. It reads no more tensors as large
    as the window than there were, or few."""
    here = (e.Expr("load", 0), [access])
    source = _producer(lowering, access, size)
    if source is None:
        return here
    loop, reads = source
    parts = [_computed(lowering, read, size) for read in reads]
    parts = [part if _full(part[1], size) <= 1 else (e.Expr("load", 0), [read]) for part, read in zip(parts, reads)]
    leaves = [read for _, own in parts for read in own]
    if len(leaves) > _MOST_LEAVES or (len(reads) > _MOST_LOADS and _full(leaves, size) > 1):
        return here
    loads, first = [], 0
    for expr, own in parts:
        loads.append(_with_loads(expr, [e.Expr("load", first + i) for i in range(len(own))]))
        first += len(own)
    return _with_loads(loop.expr, loads), leaves


def _full(reads: list[Access], size: tuple[int, ...]) -> int:
    """How many of the reads have an element for each of the window."""
    return sum(all(s for s, n in zip(read.strides, size) if n != 1) for read in reads)


def _producer(lowering: Any, access: Access, size: tuple[int, ...]) -> tuple[Loop, list[Access]] | None:
    """The pointwise loop that makes a window, if it can as well run where that is read, and what it reads for the window."""
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
        dtype = item.write.buffer.dtype
        alike = item.compute is dtype or (item.compute in _FLOATS and dtype in _FLOATS)
        starts = _starts(item, access, size)
        if item.reduce is not None or item.place is not None or not plain or not alike or starts is None:
            return None
        return item, [_window(read, starts, item.domain) for read in item.reads]
    return None


def _starts(loop: Loop, access: Access, size: tuple[int, ...]) -> list[int] | None:
    """Where a window begins in each dimension of what a loop makes; None where it is no box of that."""
    if len(size) != len(loop.domain):
        return None
    for n, whole, stride, own in zip(size, loop.domain, access.strides, loop.write.strides):
        if n != 1 and stride != (own if whole != 1 else 0):
            return None
    left, starts = access.offset - loop.write.offset, [0] * len(size)
    for dim in sorted(range(len(size)), key=lambda d: -loop.write.strides[d]):
        stride = loop.write.strides[dim]
        if stride > 0 and left > 0:
            starts[dim] = left // stride
            left -= starts[dim] * stride
    inside = all(at + n <= whole or whole == 1 for at, n, whole in zip(starts, size, loop.domain))
    return starts if left == 0 and inside else None


def _window(read: Access, starts: list[int], domain: tuple[int, ...]) -> Access:
    offset = read.offset + sum(at * stride for at, stride in zip(starts, read.strides))
    return Access(read.buffer, offset, tuple(0 if n == 1 else s for n, s in zip(domain, read.strides)))


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
    if len(tensors) == 2:
        first = tensors[0].size[dim]
        both = [joined.operand(tensors[0], {}), joined.operand(tensors[1], {dim: first})]
        body = joined.of_two(both, dim, first)
        return bool(lowering._store("cat", (result, False), body, joined.reads, result.dtype))
    for value in tensors:
        condition = joined.within({dim: start}, value.size)
        parts.append((joined.guarded(*joined.operand(value, {dim: start}), condition), start))
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
    body = joined.guarded(*joined.operand(source, starts), condition)
    if condition is not None:
        body = e.where(condition, body, value)
    return bool(lowering._store(call.op._opname, (result, False), body, joined.reads, result.dtype))
