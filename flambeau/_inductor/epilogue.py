"""Operators that take along what follows them: the search that convolutions (`convolutions.py`) and products of matrices
(`products.py`) share.

It runs over recorded calls without derivatives. From a call on it follows the results as long as a single call reads each
of them and nobody else can see it; a subclass says which of these calls its operator can do itself. All of them become one
call in the place of the last.
"""

from __future__ import annotations

import math
from typing import Any

from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace

__all__ = ["Epilogues", "is_plain"]


class Epilogues:
    """The search for one family of operators."""

    names: frozenset[str]  # of the operators that may take others along

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.readers: dict[int, list[int]] = {}  # positions of the calls that touch a storage
        for at, call in enumerate(trace.calls):
            for value in (*call.reads, *call.writes):
                self.readers.setdefault(value.storage, []).append(at)
        self.returned = {v.storage for v in trace.outputs if v is not None}
        self.taken: set[int] = set()  # positions of calls that already belong to another

    def run(self) -> None:
        """Changes the calls of the trace."""
        made_at: dict[int, list[RecordedCall]] = {}
        for at, call in enumerate(list(self.trace.calls)):
            if call.op._full_name in self.names and (finished := self.finished(at, call)) is not None:
                calls, places = finished
                self.taken.update(places)
                for one in calls:
                    one.line = call.line
                made_at[places[-1]] = calls
        if made_at:
            remaining = enumerate(self.trace.calls)
            self.trace.calls = [
                one for at, call in remaining for one in made_at.get(at, [] if at in self.taken else [call])
            ]
            self.trace.forward_calls = len(self.trace.calls)

    def finished(self, at: int, call: RecordedCall) -> tuple[list[RecordedCall], list[int]] | None:
        """The calls that stand for one of the operators and what follows, and the positions of all that they replace."""
        raise NotImplementedError

    def alike(self, result: RecordedValue, value: RecordedValue) -> bool:
        """Whether a step's result lies as the operator would write it."""
        raise NotImplementedError

    def only_reader(self, value: RecordedValue, places: list[int]) -> tuple[int, RecordedCall, RecordedValue] | None:
        """The call that alone uses a value, and the one like it that it makes; None where something is written
        meanwhile."""
        readers = set(self.readers.get(value.storage, ()))
        if value.storage in self.returned or len(readers) != 1:
            return None
        (at,) = readers
        user = self.trace.calls[at]
        if at in self.taken or any(call.writes for call in self.trace.calls[places[0] : at + 1]):
            return None
        result = user.results[0] if len(user.results) == 1 else None
        return (at, user, result) if result is not None and self.alike(result, value) else None


def operand_beside(call: RecordedCall, value: RecordedValue, ordered: bool = False) -> RecordedValue | None:
    """What a call of two operands has beside a value, which has to be the first if they are `ordered`."""
    if len(call.args) != 2 or call.kwargs:
        return None
    first, second = call.args
    if first is not value and not ordered:
        first, second = second, first
    if first is not value or not isinstance(second, RecordedValue) or second.storage == value.storage:
        return None
    return second


def is_plain(value: RecordedValue) -> bool:
    """Whether elements lie one after the other."""
    return value.stride == tuple(math.prod(value.size[i + 1 :]) for i in range(len(value.size)))


def made_by(trace: Trace, op: Any, *values: RecordedValue) -> tuple[RecordedValue, RecordedCall]:
    """What an operator makes of values, and the call of it."""
    result = trace.value(op(*(v.tensor.detach() for v in values)))
    return result, RecordedCall(op, values, {}, [result], [])
