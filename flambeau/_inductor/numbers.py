"""Floats that change from call to call, such as learning rates, as inputs of a compiled graph.

The function is recorded twice, with two different values in the place of each number. Where the records differ by just
these values, and only in what the updates of optimizers are given, the number is read from memory at each call. A graph
that calculates with its numbers in another way is compiled anew for each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau._inductor.compile_fx import GraphCompiler, compile_tensor_function, specialized_function
from flambeau._inductor.ir import ScalarInput
from flambeau.backends import records

__all__ = ["with_numbers"]


def with_numbers(
    function: Callable[..., Any], examples: Sequence[Any], fuse: bool, settings: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """A function whose arguments are tensors and numbers."""
    places = [i for i, a in enumerate(examples) if type(a) is float]
    by_value: dict[Any, Callable[..., Any]] = {}
    state = {"from_memory": bool(places) and all(isinstance(a, (float, fl.Tensor)) for a in examples)}

    def original(*args: Any) -> Any:
        given = list(args)
        for i in places:
            given[i] = given[i].item()
        return function(*given)

    compiled = NumberedGraphCompiler(function, fuse, places, settings)
    run = specialized_function(len(examples), compiled.graph_for, original)

    def call(*args: Any) -> Any:
        if not state["from_memory"]:
            return _by_value(by_value, function, args, fuse, settings)
        given = list(args)
        for i in places:
            given[i] = fl.scalar_tensor(given[i], dtype=fl.float64, device="cpu")
        try:
            return run(*given)
        except _Computed:
            state["from_memory"] = False
            return _by_value(by_value, function, args, fuse, settings)

    return call


def _by_value(made: dict[Any, Any], function: Callable[..., Any], args: Any, fuse: bool, settings: Any) -> Any:
    """One compiled function for each set of numbers."""
    tensors = [a for a in args if isinstance(a, fl.Tensor)]
    key = tuple(None if isinstance(a, fl.Tensor) else (type(a), a) for a in args)
    if key not in made:

        def fixed(*given: Any) -> Any:
            rest = iter(given)
            return function(*(next(rest) if isinstance(a, fl.Tensor) else a for a in args))

        made[key] = compile_tensor_function(fixed, len(tensors), fuse, settings=settings)
    return made[key](*tensors)


class _Computed(Exception):
    """A number takes part in what cannot read it from memory."""


class NumberedGraphCompiler(GraphCompiler):
    """A function some of whose inputs are tensors that hold one number."""

    def __init__(self, function: Callable[..., Any], fuse: bool, places: list[int], settings: Any = None) -> None:
        super().__init__(self._with_values, fuse, settings=settings)
        self.original = function
        self.places = places
        self.values: list[float] = []

    def _with_values(self, *args: Any) -> Any:
        given = list(args)
        for i, value in zip(self.places, self.values):
            given[i] = value
        return self.original(*given)

    def _trace(self, record: Callable[..., Trace], inputs: Sequence[Any], definitions: Any) -> Trace:
        # Values that no program contains by itself.
        first = [1.2345671e-3 + 3.21e-7 * i for i in range(len(self.places))]
        second = [2.3456717e-3 + 4.32e-7 * i for i in range(len(self.places))]
        self.values = first
        trace: Trace = record(self.function, inputs, definitions)
        self.values = second
        other = record(self.function, inputs, definitions)
        if len(trace.calls) != len(other.calls):
            raise _Computed
        values = {}
        for i, a, b in zip(self.places, first, second):
            known = trace.inputs[i]
            number = values[a, b] = ScalarInput(known.index, known.tensor, known.storage)
            trace.inputs[i] = number
        for i, (mine, theirs) in enumerate(zip(trace.calls, other.calls)):
            args = tuple(_merge(x, y, values) for x, y in zip(mine.args, theirs.args))
            kwargs = {k: _merge(v, theirs.kwargs[k], values) for k, v in mine.kwargs.items()}
            if args == mine.args and kwargs == mine.kwargs:
                continue
            found = records.find(mine.op)
            if found is None or found.kind != "update":
                raise _Computed
            trace.calls[i] = made = RecordedCall(mine.op, args, kwargs, mine.results, mine.writes)
            made.backward = mine.backward
        return trace


def _merge(mine: Any, theirs: Any, values: dict[tuple[float, float], ScalarInput]) -> Any:
    """An argument of the first record, with the number in the place of its value."""
    if isinstance(mine, RecordedValue):
        return mine
    if isinstance(mine, (list, tuple)):
        if len(mine) != len(theirs):
            raise _Computed
        return type(mine)(_merge(a, b, values) for a, b in zip(mine, theirs))
    if type(mine) is float and (mine, theirs) in values:
        return values[mine, theirs]
    if mine is not theirs and mine != theirs and not (mine != mine and theirs != theirs):
        raise _Computed
    return mine
