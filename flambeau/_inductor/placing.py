"""Lowering writes and reads whose place is found in memory: `index_copy_`, as a cache of keys and values is extended word by
word, and a few rows of a table, as those of a word and of its position.

The write is a loop over what is copied, so that it runs in the kernel that computes that. An index out of bounds writes
nothing, reads zeros and is reported, as by the operator.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall, Place
from flambeau.ops import expr as e

__all__ = ["arange", "embedding", "index", "index_copy_"]

_MOST_GATHERED = 1 << 16  # elements


def index_copy_(lowering: Any, call: RecordedCall) -> bool:
    """index_copy_(self, dim, index, source)"""
    if not lowering.printer.places or call.kwargs or not lowering._computes(call):
        return False
    target, dim, index, source = call.args
    if not target.size or len(index.size) > 1 or index.dtype not in (fl.int32, fl.int64):
        return False
    if target.dtype is not source.dtype or target.dtype is fl.bool or 0 in target.size:
        return False
    state = _fresh_state(lowering, target)
    if state is None:
        return False
    dim %= len(target.size)
    along = tuple(int(d == dim and n != 1) for d, n in enumerate(source.size))
    index_read = lowering.read(index)
    index_strides = tuple(step * sum(index_read.strides) for step in along)
    reads = [lowering.read(source), Access(index_read.buffer, index_read.offset, index_strides)]
    strides = tuple(0 if n == 1 or d == dim else s for d, (n, s) in enumerate(zip(source.size, target.stride)))
    place = Place(1, target.stride[dim], target.size[dim])
    write = Access(state, target.offset, strides)
    loop = Loop("index_copy_", source.size, e.Expr("load", 0), reads, write, source.dtype, place=place)
    lowering.items.append(loop)
    lowering.widened.clear()  # what they are copies of may be written
    lowering.current[target.storage] = state
    return True


def _fresh_state(lowering: Any, target: RecordedValue) -> Buffer | None:
    """The state of an input's memory after a write, where nothing has read or written that before: loops of one group then
    cannot get in each other's way. None where something has."""
    old = lowering.current[target.storage]
    if old.source != "input" or old.memory is not old or old.dtype is not target.dtype:
        return None
    if any(old in _touched(item) for item in lowering.items):
        return None
    state = Buffer(lowering.count, old.dtype, old.size, old.stride, "loop")
    lowering.count += 1
    state.memory = old
    return state


def _touched(item: Loop | OperatorCall) -> set[Buffer]:
    if isinstance(item, OperatorCall):
        return {buffer.memory for buffer, _ in item.reads} | {buffer.memory for buffer in item.written}
    return {access.buffer.memory for access in (item.write, *item.reads)}


# ---------------------------------------------------------------- rows that are read


def embedding(lowering: Any, call: RecordedCall) -> bool:
    """embedding(weight, indices, ...)"""
    table, indices = call.args[:2]
    return _rows_of(lowering, call, table, indices, False)


def index(lowering: Any, call: RecordedCall) -> bool:
    """index(self, indices), with one index tensor for the first dimension; negative ones count from the end."""
    table, indices = call.args
    only_first = len(indices) >= 1 and indices[0] is not None and all(i is None for i in indices[1:])
    return only_first and _rows_of(lowering, call, table, indices[0], True)


def _rows_of(lowering: Any, call: RecordedCall, table: RecordedValue, indices: RecordedValue, wraps: bool) -> bool:
    """A few rows of a table, as a loop that whoever reads them has in its kernel. Where there are many, the operator is as good."""
    result = call.results[0]
    if (
        result is None
        or math.prod(result.size) > _MOST_GATHERED
        or not lowering.printer.places
        or not lowering._computes(call)
    ):
        return False
    if not table.size or indices.dtype not in (fl.int32, fl.int64) or table.dtype is not result.dtype:
        return False
    lead = len(indices.size)
    number = lowering.read(indices)
    element = lowering.read(table)
    reads = [
        Access(number.buffer, number.offset, number.strides + (0,) * (len(table.size) - 1)),
        Access(element.buffer, element.offset, (0,) * lead + element.strides[1:]),
    ]
    body = e.Expr("row", e.Expr("load", 0), e.Expr("load", 1), table.size[0], table.stride[0], True, wraps)
    return bool(lowering._store(call.op._opname, (result, False), body, reads, result.dtype))


def arange(lowering: Any, call: RecordedCall) -> bool:
    """arange of integers, which needs no memory where it is read."""
    numbers = call.args
    result = call.results[0]
    if not lowering.printer.indices or not lowering.printer.places or result is None or result.dtype is not fl.int64:
        return False
    if not numbers or not all(type(n) is int for n in numbers) or not 0 < result.size[0] < 1 << 31:
        return False
    first, step = (0, 1) if len(numbers) == 1 else (numbers[0], 1) if len(numbers) == 2 else (numbers[0], numbers[2])
    number = Access(Buffer(-1, fl.int64, (), (), "index"), 0, (int(result.size[0] != 1),))
    body = e.Expr("load", 0)
    body = body if step == 1 else body * step
    body = body if first == 0 else body + first
    return bool(lowering._store("arange", (result, False), body, [number], fl.int64))
