"""Convolutions with what follows them: in evaluation, a 3 x 3 convolution, its batch normalisation, residual sum and relu
become one call.

The pass runs over recorded calls, after layouts were chosen. It looks for

    ((conv2d(x, w, bias) - mean) * scale + shift + residual).relu()

of which everything but the convolution may be missing, where nobody else sees what is between. The call computes in
single precision, channels-last, by Winograd's algorithm (`csrc/cpu/winograd.h`). Parameters and running statistics are its
arguments like others, so that a change of them is seen by the next call.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import Call, Trace, Value
from flambeau._inductor import config
from flambeau.backends import records

__all__ = ["finish_convolutions"]

LEAST_CHANNELS = 48  # below, transforming tiles costs more than the products save

# The steps in their order: operator, and which argument of the call its operand is.
_STEPS = (("sub.Tensor", "mean"), ("mul.Tensor", "scale"), ("add.Tensor", "shift"), ("add.Tensor", "residual"))


def finish_convolutions(trace: Trace) -> None:
    """Changes the calls of a trace without derivatives."""
    if any(call.op._full_name == "conv2d" for call in trace.calls):
        _Finishing(trace).run()


class _Finishing:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.readers: dict[int, list[int]] = {}  # positions of the calls that touch a storage
        for at, call in enumerate(trace.calls):
            for value in (*call.reads, *call.writes):
                self.readers.setdefault(value.storage, []).append(at)
        self.returned = {v.storage for v in trace.outputs if v is not None}
        self.taken: set[int] = set()  # positions of calls that already belong to a convolution

    def run(self) -> None:
        calls: list[Call | None] = list(self.trace.calls)
        for at, call in enumerate(self.trace.calls):
            if call.op._full_name == "conv2d" and (found := self._finished(at, call)) is not None:
                made, places = found
                self.taken.update(places)
                for place in places:
                    calls[place] = None
                calls[places[-1]] = made
        self.trace.calls = [call for call in calls if call is not None]
        self.trace.forward_calls = len(self.trace.calls)

    def _finished(self, at: int, call: Call) -> tuple[Call, list[int]] | None:
        """The call that stands for a convolution and what follows, and the positions of all these."""
        given = records.bind(call.op, call.args, call.kwargs)
        value = call.results[0]
        if value is None or not _fits(given, value) or not _pays(given, value):
            return None
        places, operands = [at], dict.fromkeys(("mean", "scale", "shift", "residual"))
        step, relu = 0, False
        while not relu and (following := self._only_reader(value, places)) is not None:
            place, user, result = following
            if user.op._full_name == "relu":
                relu = True
            else:
                taken = _operand(user, value, step)
                if taken is None:
                    break
                name, step, operands[name] = _STEPS[taken[0]][1], taken[0] + 1, taken[1]
            places.append(place)
            value = result
        args = (
            given["input"], given["weight"], given["bias"], *operands.values(), relu, _pair(given["padding"]),
        )  # fmt: skip
        made = Call(fl.ops.aten._convolution_finished.default, args, {}, [value], [])
        made.line = call.line
        return made, places

    def _only_reader(self, value: Value, places: list[int]) -> tuple[int, Call, Value] | None:
        """The call that alone uses a value, and the one like it that it makes; None where something is written
        meanwhile."""
        found = set(self.readers.get(value.storage, ()))
        if value.storage in self.returned or len(found) != 1:
            return None
        (at,) = found
        user = self.trace.calls[at]
        if at in self.taken or user.kwargs or any(call.writes for call in self.trace.calls[places[0] : at + 1]):
            return None
        result = user.results[0] if len(user.results) == 1 else None
        return (at, user, result) if result is not None and _alike(result, value) else None


def _operand(call: Call, value: Value, step: int) -> tuple[int, Value] | None:
    """Which of the steps from `step` on a call is, and its operand beside the value."""
    if len(call.args) != 2:
        return None
    first, second = call.args
    if first is not value and call.op._full_name != "sub.Tensor":
        first, second = second, first
    if first is not value or not isinstance(second, Value) or second.dtype is not fl.float32:
        return None
    for at in range(step, len(_STEPS)):
        op, name = _STEPS[at]
        fits = _alike(second, value) if name == "residual" else second.size == (1, value.size[1], 1, 1)
        if op == call.op._full_name and fits and second.storage != value.storage:
            return at, second
    return None


def _fits(given: dict[str, Any], result: Value) -> bool:
    """Whether a convolution is one that the algorithm does."""
    return (
        given["weight"].size[2:] == (3, 3)
        and _pair(given["stride"]) == _pair(given["dilation"]) == [1, 1]
        and given["groups"] == 1
        and result.dtype is fl.float32
        and len(result.size) == 4
        and _is_channels_last(given["input"])
        and _is_channels_last(result)
    )


def _pays(given: dict[str, Any], result: Value) -> bool:
    """Whether the algorithm takes less time; it has to transform the weights in each call."""
    if config.max_autotune:
        return _is_measured_quicker(given)
    batch, channels, height, width = map(int, result.size)
    tiles = batch * ((height + 1) // 2) * ((width + 1) // 2)
    return tiles >= channels >= LEAST_CHANNELS and bool(given["input"].size[1] >= LEAST_CHANNELS)


def _is_measured_quicker(given: dict[str, Any]) -> bool:
    from flambeau._inductor.tune import quickest

    size, kernel, padding = given["input"].size, given["weight"].size, _pair(given["padding"])
    x = fl.ones(size).contiguous(memory_format=fl.channels_last)
    weight = fl.ones(kernel)
    ways = [
        lambda: fl.conv2d(x, weight, None, 1, padding),
        lambda: fl._ops._convolution_finished(x, weight, None, None, None, None, None, False, padding),
    ]
    with fl.no_grad():
        return quickest(f"convolution {size} {kernel} {padding}", ways) == 1


def _pair(given: Any) -> list[int]:
    numbers = [given] if isinstance(given, int) else list(given)
    return numbers * 2 if len(numbers) == 1 else numbers


def _alike(a: Value, b: Value) -> bool:
    return (a.size, a.dtype) == (b.size, b.dtype) and a.offset == 0 and _is_channels_last(a)


def _is_channels_last(value: Value) -> bool:
    _, channels, height, width = value.size
    return value.stride == (channels * height * width, 1, channels * width, channels)
