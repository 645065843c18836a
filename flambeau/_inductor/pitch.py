"""Pitch: rows of large matrices that products read or write begin at even addresses on a GPU.

The fast kernels of matrix products want rows that begin at multiples of sixteen bytes, which the 50,257 columns of a
language model's scores do not. The pass runs over recorded calls: a storage that nobody outside sees, and of which only
whole rows are seen, gets rows that are some elements further apart. Products that make one are told the distance; loops
write at any; what other operators make is copied (`Lowering`).
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace

__all__ = ["choose_pitches"]

LINE = 128  # bytes
_SMALLEST = 1 << 15  # elements; a small matrix is not worth it
_PRODUCTS = frozenset(("mm", "linear"))
_READERS = _PRODUCTS | {"addmm", "matmul"}


def choose_pitches(trace: Trace) -> None:
    """Changes calls and values in place; `trace.padded` are the storages that were changed."""
    ends = [*trace.inputs, *trace.outputs, *trace.tangents, *trace.gradients]
    fixed = {v.storage for v in ends if v is not None} | {v.storage for v, _ in trace.constants.values()}
    wanted: set[int] = set()
    for call in trace.calls:
        if call.op._full_name in _READERS:
            wanted |= {v.storage for v in (*call.reads, *call.results) if v is not None}
    if not any(_uneven(trace.roots[s]) for s in wanted - fixed):
        return
    on: dict[int, list[RecordedValue]] = {}
    for value in trace.values.values():
        on.setdefault(value.storage, []).append(value)
    written = {v.storage for call in trace.calls for v in call.writes}
    for storage in wanted - fixed - written:
        root = trace.roots[storage]
        if _uneven(root) and all(_has_rows(v, root.size[-1]) for v in on[storage]):
            trace.padded.add(storage)
            for value in on[storage]:
                _spread(trace, value, root.size[-1])
    trace.calls = [_told(trace, call) for call in trace.calls]


def _pitch(length: int, dtype: Any) -> int:
    items: int = LINE // dtype.itemsize
    return -(-length // items) * items


def _uneven(root: RecordedValue) -> bool:
    size = root.size
    return (
        len(size) >= 2
        and root.dtype in (fl.bfloat16, fl.float16)
        and size[-1] * root.dtype.itemsize % 16 != 0
        and math.prod(size) >= _SMALLEST
        and size[-1] >= LINE
        and root.offset == 0
        and root.stride == tuple(math.prod(size[i + 1 :]) for i in range(len(size)))
    )


def _has_rows(value: RecordedValue, length: int) -> bool:
    """Whether a window has whole rows of a length, as one of its dimensions."""
    others = [(n, s) for n, s in zip(value.size, value.stride) if (n, s) != (length, 1)]
    whole = len(others) == len(value.size) - 1
    return whole and value.offset == 0 and all(n == 1 or s % length == 0 for n, s in others)


def _spread(trace: Trace, value: RecordedValue, length: int) -> None:
    pitch = _pitch(length, value.dtype)
    trace.kept.append(value.tensor)
    value.stride = tuple(1 if s == 1 else s // length * pitch for s in value.stride)
    value.tensor = fl.empty_strided(value.size, value.stride, dtype=value.dtype, device="meta")


def _told(trace: Trace, call: RecordedCall) -> RecordedCall:
    """The call, with the distance of its result's rows if that was changed."""
    result = call.results[0] if len(call.results) == 1 else None
    if result is None or result.storage not in trace.padded or call.op._full_name not in _PRODUCTS:
        return call
    arguments: list[Any] = [*call.args, *call.kwargs.values()]
    first, second, bias = (*arguments, None)[:3]
    if len(first.size) < 2 or len(second.size) != 2 or (bias is not None and len(bias.size) != 1):
        return call
    if call.op._full_name == "linear":
        second = trace.value(second.tensor.detach().t())
    pitch = _pitch(result.size[-1], result.dtype)
    pitched = RecordedCall(fl.ops.aten._product_pitched.default, (first, second, bias, pitch), {}, call.results, [])
    pitched.backward, pitched.line = call.backward, call.line
    return pitched
