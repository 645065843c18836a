"""In place: operators that copy their first argument only to write into it write into the argument itself.

The gradient of an embedding is zeros to which rows are added: out of place, that copies the whole table. Where the argument
was made in the same program, and nobody else reads it, the call of backward is replaced by the one in place.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau.ops import tags

__all__ = ["write_in_place"]


def write_in_place(trace: Trace) -> None:
    """Changes calls and values in place. Calls of a forward that has a backward stay: what they read may be saved."""
    begin = trace.forward_calls if trace.tangents else 0
    ends = [*trace.inputs, *trace.outputs, *trace.tangents, *trace.gradients]
    fixed = {v.storage for v in ends if v is not None} | {v.storage for v, _ in trace.constants.values()}
    reads = Counter(v.storage for call in trace.calls for v in call.reads)
    written_storages = {v.storage for call in trace.calls[begin:] for v in call.results if v is not None}
    on: dict[int, list[RecordedValue]] | None = None
    for at in range(begin, len(trace.calls)):
        call = trace.calls[at]
        op = _in_place(call)
        if op is None:
            continue
        source, result = call.args[0], call.results[0]
        assert result is not None
        if source.storage in fixed or source.storage not in written_storages or reads[source.storage] != 1:
            continue
        if on is None:
            on = {}
            for value in trace.values.values():
                on.setdefault(value.storage, []).append(value)
        trace.calls[at] = replaced = RecordedCall(op, call.args, call.kwargs, [], [source])
        replaced.backward = call.backward
        for value in on[result.storage]:
            value.storage = source.storage


def _in_place(call: RecordedCall) -> Any:
    """The operator that does the same in place, of a call whose result lies as its first argument does."""
    if call.op._full_name not in tags.operators("changes_part") or call.writes or len(call.results) != 1:
        return None
    source, result = call.args[0] if call.args else None, call.results[0]
    if not isinstance(source, RecordedValue) or result is None:
        return None
    whole = (source.size, source.stride, source.offset, source.dtype)
    if whole != (result.size, result.stride, 0, result.dtype) or 0 in source.size:
        return None
    packet = getattr(fl.ops.aten, f"{call.op._opname}_", None)
    overload = call.op._full_name.partition(".")[2] or "default"
    return getattr(packet, overload, None)
