"""Freezing: what a graph computes from parameters alone is computed once (`config.freezing`, without derivatives).

Weights of products and of 3 x 3 convolutions are packed as the inner loops read them, normalisations become part of the
weights before them, converted weights stay converted. The values are kept beside the parameters, which costs memory: a
packed matrix takes four bytes for each element, weights of a 3 x 3 convolution 16 / 9 of their size. Geometries of one
compiled function share them.

Parameters stay inputs of the graph. In every run `csrc/compiled/kept_value.h` looks whether they are the same and whether they were
written, and computes again what depends on them if so. It does not see what is written through a NumPy array, a pointer,
or a `.data` that is older than the first run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau._functorch.aot.partition import always_the_same
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace

__all__ = ["frozen_storages", "hoist"]


def frozen_storages(trace: Trace, members: Iterable[int]) -> set[int]:
    """The storages of some inputs and of all that is computed from these alone, where nobody writes to them."""
    frozen = {trace.inputs[i].storage for i in members} - _touched(trace)
    for call in trace.calls:
        if _is_frozen(call, frozen):
            frozen |= {v.storage for v in call.results if v is not None}
    return frozen - {v.storage for v in trace.outputs if v is not None}


def _touched(trace: Trace) -> set[int]:
    return {v.storage for call in trace.calls for v in call.writes}


def _is_frozen(call: RecordedCall, frozen: set[int]) -> bool:
    return (
        bool(call.reads)
        and not call.writes
        and None not in call.results
        and all(v.storage in frozen for v in call.reads)
        and always_the_same(call)
    )


def hoist(
    trace: Trace,
    members: Iterable[int],
    hoisted_values: dict[str, Any],
    make: Callable[[list[RecordedCall], list[int], RecordedValue], Any],
) -> list[tuple[RecordedValue, Any]]:
    """Takes calls on frozen storages out of the trace. Returns the values that the rest reads of them, each with what keeps
    it: `make(calls, inputs, value)`, or what it made in another trace for the same."""
    positions = {trace.inputs[i].storage: i for i in members}
    frozen = frozen_storages(trace, members)
    maker: dict[int, RecordedCall] = {}
    rest = []
    for call in trace.calls:
        results = {v.storage for v in call.results if v is not None}
        if results and results <= frozen and _is_frozen(call, frozen):
            maker.update(dict.fromkeys(results, call))
        else:
            rest.append(call)
    trace.calls = rest
    trace.forward_calls = len(rest)
    hoisted = []
    for storage in dict.fromkeys(v.storage for call in rest for v in call.reads if v.storage in maker):
        value = trace.roots[storage]
        key = _described(value, maker, positions)
        if key not in hoisted_values:
            calls = _needed(storage, maker)
            inputs = sorted({positions[v.storage] for call in calls for v in call.reads if v.storage not in maker})
            hoisted_values[key] = make(calls, inputs, value)
        hoisted.append((value, hoisted_values[key]))
    return hoisted


def _needed(storage: int, maker: dict[int, RecordedCall]) -> list[RecordedCall]:
    """The calls that make a storage, in order."""
    needed: dict[int, RecordedCall] = {}

    def visit(at: int) -> None:
        call = maker.get(at)
        if call is not None and id(call) not in needed:
            for value in call.reads:
                visit(value.storage)
            needed[id(call)] = call

    visit(storage)
    return list(needed.values())


def _described(item: Any, maker: dict[int, RecordedCall], positions: dict[int, int]) -> str:
    """How a value is computed from inputs, as a text that is the same for every trace that does so."""
    if isinstance(item, RecordedValue):
        call = maker.get(item.storage)
        window = f"{item.size}{item.stride}{item.offset}{item.dtype}"
        if call is None:
            return f"input{positions[item.storage]}{window}"
        which = next(i for i, v in enumerate(call.results) if v is not None and v.storage == item.storage)
        arguments = [*call.args, *sorted(call.kwargs.items())]
        return f"{call.op}({', '.join(_described(a, maker, positions) for a in arguments)}).{which}{window}"
    if isinstance(item, (list, tuple)):
        return f"[{', '.join(_described(x, maker, positions) for x in item)}]"
    return repr(item)
