"""Frozen weights of recurrent layers lie transposed, as products with rows read them.

In: a trace without derivatives, and the storages that stay from run to run. Out: calls that transpose the weights, which
`freezing.py` takes out of the trace; the layers read views of the original sizes.
"""

from __future__ import annotations

from collections.abc import Set

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau.backends import records
from flambeau.ops import tags

__all__ = ["transpose_weights"]


def transpose_weights(trace: Trace, frozen: Set[int]) -> None:
    """Changes the calls of recurrent layers whose weights are frozen."""
    names = tags.operators("recurrent")
    transposed: dict[RecordedValue, RecordedValue] = {}
    calls = []
    for call in trace.calls:
        if call.op._full_name in names:
            arguments = records.bind(call.op, call.args, call.kwargs)
            for name in ("w_ih", "w_hh"):
                weight = arguments[name]
                if weight.storage not in frozen:
                    continue
                if weight not in transposed:
                    copy, transposed[weight] = _transposed(trace, weight)
                    calls.append(copy)
                arguments[name] = transposed[weight]
            call = RecordedCall(call.op, tuple(arguments.values()), {}, call.results, call.writes)
        calls.append(call)
    trace.calls = calls


def _transposed(trace: Trace, weight: RecordedValue) -> tuple[RecordedCall, RecordedValue]:
    """A call that copies a weight, and the weight as it lies in the copy."""
    columns = weight.tensor.detach().t()
    form = {"memory_format": fl.contiguous_format}
    result = trace.value(columns.clone(**form))
    copy = RecordedCall(fl.ops.aten.clone.default, (trace.value(columns),), form, [result], [])
    return copy, trace.value(result.tensor.detach().t())
