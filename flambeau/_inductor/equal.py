"""Equal calls: what a program computes twice from the same values is computed once.

Models build the same mask, range or rotation in every layer. The pass runs over recorded calls of the forward: a call that
draws no random numbers, writes nothing and has the operator and arguments of an earlier one goes, and its results are those
of the earlier one.
"""

from __future__ import annotations

from typing import Any

from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau.ops import tags

__all__ = ["merge_equal_calls"]


def merge_equal_calls(trace: Trace) -> None:
    """Changes calls and values in place."""
    ends = [*trace.outputs, *trace.gradients]
    fixed = {v.storage for v in ends if v is not None} | {v.storage for call in trace.calls for v in call.writes}
    random = tags.operators("random")
    known: dict[Any, RecordedCall] = {}
    same_as: dict[int, int] = {}  # storages that go: those that stand for them
    calls: list[RecordedCall] = []
    for call in trace.calls[: trace.forward_calls]:
        name = call.op._full_name
        touched = {v.storage for v in (*call.reads, *call.results) if v is not None}
        if call.writes or name in random or "::" in name or touched & fixed or not call.results:
            calls.append(call)
            continue
        key = (name, _key(call.args, same_as), _key(list(call.kwargs.items()), same_as))
        earlier = known.setdefault(key, call)
        if earlier is call or not _alike(earlier, call):
            calls.append(call)
            continue
        for mine, other in zip(call.results, earlier.results):
            if mine is not None and other is not None:
                same_as[mine.storage] = other.storage
    if not same_as:
        return
    for value in trace.values.values():
        value.storage = same_as.get(value.storage, value.storage)
    trace.calls = calls + trace.calls[trace.forward_calls :]
    trace.forward_calls = len(calls)


def _alike(earlier: RecordedCall, call: RecordedCall) -> bool:
    """Whether results have storages of their own that lie alike."""
    own = {v.storage for v in call.reads}
    for mine, other in zip(call.results, earlier.results):
        if mine is None or other is None or mine.storage in own:
            return False
        if (mine.size, mine.stride, mine.offset, mine.dtype) != (other.size, other.stride, other.offset, other.dtype):
            return False
    return len({v.storage for v in call.results if v is not None}) == len(call.results) == len(earlier.results)


def _key(item: Any, same_as: dict[int, int]) -> Any:
    if isinstance(item, RecordedValue):
        storage = same_as.get(item.storage, item.storage)
        return (storage, item.size, item.stride, item.offset, str(item.dtype))
    if isinstance(item, (list, tuple)):
        return tuple(_key(x, same_as) for x in item)
    return f"{type(item).__name__} {item!r}"
