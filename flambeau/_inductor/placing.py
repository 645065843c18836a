"""Lowering writes whose place is found in memory: `index_copy_`, as a cache of keys and values is extended word by word.

The write is a loop over what is copied, so that it runs in the kernel that computes that. An index out of bounds writes
nothing and is reported, as by the operator.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue
from flambeau._inductor import config
from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall, Place
from flambeau.ops import expr as e

__all__ = ["index_copy_"]


def index_copy_(lowering: Any, call: RecordedCall) -> bool:
    """index_copy_(self, dim, index, source)"""
    if not lowering.printer.places or not config.triton.places or call.kwargs or not lowering._computes(call):
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
