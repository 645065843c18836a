"""Heads: keys and values that are repeated for the query heads that share them are not repeated.

Programs write grouped-query attention with `repeat_interleave`, or with `expand` and `reshape`: a copy of the keys for each
query head, and in backward a sum over them. The kernels of attention take fewer key heads than query heads, and add up their
gradients. The pass gives them what was repeated; nobody needs the copy any more, and the kernels of backward write the sum.
"""

from __future__ import annotations

from typing import NamedTuple

from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau.ops import tags

__all__ = ["share_heads"]


class _Repeat(NamedTuple):
    at: int  # among the calls
    source: RecordedValue  # (batch, key heads, repeats, length, depth) with a stride of zero for the repeats


def share_heads(trace: Trace) -> None:
    """Changes calls in place."""
    repeats = _repeats(trace)
    if not repeats:
        return
    written: dict[int, int] = {}  # the last call that writes to a storage
    readers: dict[int, list[RecordedCall]] = {}
    for at, call in enumerate(trace.calls):
        written.update((v.storage, at) for v in call.writes)
        for read in call.reads:
            readers.setdefault(read.storage, []).append(call)
    ends = {v.storage for v in (*trace.outputs, *trace.gradients) if v is not None}
    dropped: set[int] = set()
    for at, call in enumerate(trace.calls):
        backward = call.op._full_name in tags.operators("attention_backward")
        if not backward and call.op._full_name not in tags.operators("attention"):
            continue
        first = 2 if backward else 1  # the place of the key among the arguments
        key, value = (_shared(trace, v, repeats, written) for v in call.args[first : first + 2])
        if key is None or value is None or key.size[1] != value.size[1]:
            continue
        results = list(call.results)
        if backward:
            of_key, of_value = (_sum_of(results[i], readers, ends, v.size) for i, v in ((1, key), (2, value)))
            if of_key is None or of_value is None:
                continue
            dropped |= {id(of_key), id(of_value)}
            results[1:3] = [of_key.results[0], of_value.results[0]]
        args = (*call.args[:first], key, value, *call.args[first + 2 :])
        trace.calls[at] = replaced = RecordedCall(call.op, args, call.kwargs, results, call.writes)
        replaced.backward = call.backward
    trace.forward_calls -= sum(id(call) in dropped for call in trace.calls[: trace.forward_calls])
    trace.calls = [call for call in trace.calls if id(call) not in dropped]


def _repeats(trace: Trace) -> dict[int, _Repeat]:
    """The copies that repeat heads, by storage."""
    repeats = {}
    for at, call in enumerate(trace.calls):
        source = call.args[0] if call.op._opname == "clone" and call.args else None
        if not isinstance(source, RecordedValue) or len(source.size) != 5 or call.results[0] is None:
            continue
        if source.stride[2] == 0 and source.size[2] > 1 and 0 not in source.size:
            repeats[call.results[0].storage] = _Repeat(at, source)
    return repeats


def _shared(
    trace: Trace, value: RecordedValue, repeats: dict[int, _Repeat], written: dict[int, int]
) -> RecordedValue | None:
    """What a key or value repeats, of four dimensions; None where it repeats nothing, or what is written to later."""
    repeat = repeats.get(value.storage)
    if repeat is None:
        return None
    batch, heads, each, length, depth = repeat.source.size
    plain = (heads * each * length * depth, length * depth, depth, 1)
    if value.size != (batch, heads * each, length, depth) or value.offset != 0:
        return None
    if any(n != 1 and s != t for n, s, t in zip(value.size, value.stride, plain)):
        return None
    if value.storage in written or written.get(repeat.source.storage, -1) > repeat.at:
        return None
    view = repeat.source.tensor.detach().select(2, 0)
    trace.kept.append(view)
    return trace.value(view)


def _sum_of(
    gradient: RecordedValue | None, readers: dict[int, list[RecordedCall]], ends: set[int], size: tuple[int, ...]
) -> RecordedCall | None:
    """The call that adds up the gradients of repeated heads, where nobody else reads them."""
    if gradient is None or gradient.storage in ends or len(readers.get(gradient.storage, [])) != 1:
        return None
    call = readers[gradient.storage][0]
    batch, heads, length, depth = size
    each = gradient.size[1] // heads
    is_sum = call.op._full_name == "sum" and list(call.args[1]) == [2] and len(call.reads) == 1
    if not is_sum or call.reads[0].size != (batch, heads, each, length, depth) or call.results[0] is None:
        return None
    result = call.results[0]
    fits = result.size == size and result.dtype == gradient.dtype and result.offset == 0
    return call if fits and _splits_heads(call.reads[0], gradient) else None


def _splits_heads(view: RecordedValue, gradient: RecordedValue) -> bool:
    """Whether a view of five dimensions is a gradient with its heads divided into groups."""
    outer, inner = view.stride[1:3]
    rest = (view.stride[0], *view.stride[3:]) == (gradient.stride[0], *gradient.stride[2:])
    return rest and inner == gradient.stride[1] and outer == inner * view.size[2] and view.offset == gradient.offset
