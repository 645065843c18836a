"""Layout: where intermediate results lie, whatever eager mode would choose.

**Convolutions.** Activations around them lie channels-last.

Convolutions compute in that order and would otherwise rearrange what they read and write, each of them. The pass runs over
recorded calls, where it is known who sees a storage: one that is only ever used as a whole, and that nobody outside gets,
may lie in memory as the compiler likes. From a convolution on the order is inherited as operators do it: each call is
answered again by its kernel for tensors without data, in the new layout, and where its results do not come as the record
says, a copy is entered behind it.

**Rows.** An image split into patches by a convolution is a sequence whose features are far apart, and pointwise operators keep
that order: every normalisation of the transformer that follows would read its rows with strides. Pointwise results that are
reduced along their last dimension lie contiguously instead; the first one reads what is turned.
"""

from __future__ import annotations

from typing import Any

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace, Unsupported
from flambeau.backends import records
from flambeau.ops import tags

__all__ = ["choose_layouts", "straighten_rows"]

_FORWARD, _TRANSPOSED, _BACKWARD = range(3)


def choose_layouts(trace: Trace, dtypes: tuple[Any, ...] = (fl.float32,), weights: bool = False) -> None:
    """Changes calls and values in place; `dtypes` are those of which convolutions gain, and with `weights` they would
    rearrange weights too, each time."""
    if any(_role(call) in (_FORWARD, _TRANSPOSED) for call in trace.calls):
        _Layouts(trace, dtypes, weights).run()


def _role(call: RecordedCall) -> int | None:
    """What a call is of a convolution of planes or volumes, None if it is nothing of it."""
    if call.op._full_name not in tags.operators("convolution"):
        return None
    names = [argument.name for argument in call.op._schema.arguments]
    if "grad_output" in names:
        return _BACKWARD
    if len(call.args[1].size) < 4:
        return None
    return _TRANSPOSED if "output_padding" in names and "transposed" not in names else _FORWARD


def _plain(size: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(size):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def _last(size: tuple[int, ...]) -> tuple[int, ...]:
    batch, channels, *space = size
    inner = tuple(channels * s for s in _plain(tuple(space)))
    return (channels * _product(space), 1, *inner) if batch else _plain(size)


def _product(sizes: Any) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def _alike(size: tuple[int, ...], a: Any, b: Any) -> bool:
    """Whether strides mean the same: those of single elements do not matter."""
    return all(n == 1 or x == y for n, x, y in zip(size, a, b))


class _Layouts:
    def __init__(self, trace: Trace, dtypes: tuple[Any, ...], weights: bool) -> None:
        self.trace = trace
        self.dtypes = dtypes
        self.weights: dict[int, RecordedValue] | None = {} if weights else None  # copies of weights, by storage
        self.calls: list[RecordedCall] = []
        self.on: dict[int, list[RecordedValue]] = {}  # the values on each storage
        for value in trace.values.values():
            self.on.setdefault(value.storage, []).append(value)
        ends = [*trace.inputs, *trace.outputs, *trace.tangents, *trace.gradients]
        self.fixed = {v.storage for v in ends if v is not None} | {v.storage for v, _ in trace.constants.values()}
        self.written = {v.storage for call in trace.calls for v in call.writes}
        self.moved: set[int] = set()  # storages that now lie channels-last
        self.copies: dict[int, RecordedValue] = {}  # channels-last copies of values that stay as they are, by storage

    def run(self) -> None:
        calls, at = self.trace.calls, self.trace.forward_calls
        for call in calls[:at]:
            self._visit(call)
        self.trace.forward_calls = len(self.calls)
        self.copies.clear()  # a copy that backward used, too, would have to be kept until then
        for call in calls[at:]:
            self._visit(call)
        self.trace.calls = self.calls

    def _movable(self, value: RecordedValue) -> bool:
        root = self.trace.roots[value.storage]
        return (
            value.storage not in self.fixed
            and len(root.size) in (4, 5)
            and root.size[1] > 1
            and _product(root.size[2:]) > 1
            and 0 not in root.size
            and root.offset == 0
            and root.stride == _plain(root.size)
            and all((v.size, v.stride, v.offset) == (root.size, root.stride, 0) for v in self.on[value.storage])
        )

    def _visit(self, call: RecordedCall) -> None:
        role = _role(call)
        gains = role == _FORWARD or (role == _TRANSPOSED and self.weights is None)
        if gains and self._gains(call.args[0], call.results[0]):
            call = self._with_argument(call, 0)
        elif role == _BACKWARD and self._gains(call.args[1], call.results[0]):
            call = self._with_argument(call, 1)
        if self.weights is not None and role in (_FORWARD, _BACKWARD):
            call = self._with_weight(call, 1 if role == _FORWARD else 2)
        for written in call.writes:
            self.copies.pop(written.storage, None)
        if not any(v.storage in self.moved for v in call.reads):
            self.calls.append(call)
            return
        answers = _answer(call)
        if answers is None or not self._accepts(call, answers):
            if any(v.storage in self.moved for v in call.writes):
                raise Unsupported(f"{call.op} cannot write channels-last memory")
            self.calls.append(self._with_plain_arguments(call))
            return
        after: list[RecordedCall] = []
        results = list(call.results)
        for i, (value, tensor) in enumerate(zip(results, answers)):
            if value is None or _alike(value.size, value.stride, tensor.stride()):
                continue
            if self._movable(value) and _alike(value.size, _last(value.size), tensor.stride()):
                self._move(value)
                continue
            returned = self.trace.value(tensor)
            self.on[returned.storage] = [returned]
            results[i] = returned
            after.append(self._copy(returned, value, call.backward))
        call.results = results
        self.calls += [call, *after]

    @staticmethod
    def _accepts(call: RecordedCall, answers: list[Any]) -> bool:
        """Whether each result comes as the record says, or can be copied into what it says."""
        return all(
            value is None or _alike(value.size, value.stride, tensor.stride()) or value.stride == _plain(value.size)
            for value, tensor in zip(call.results, answers)
        )

    def _with_plain_arguments(self, call: RecordedCall) -> RecordedCall:
        """The call on copies in the layout that was recorded."""

        def plain(item: Any) -> Any:
            if isinstance(item, RecordedValue) and item.storage in self.moved:
                twin = fl.empty_strided(item.size, _plain(item.size), dtype=item.dtype, device="meta")
                copy = self.trace.value(twin)
                self.on[copy.storage] = [copy]
                self.calls.append(self._copy(item, copy, call.backward))
                return copy
            return type(item)(map(plain, item)) if isinstance(item, (list, tuple)) else item

        return _replaced(call, plain(tuple(call.args)), {k: plain(v) for k, v in call.kwargs.items()})

    def _gains(self, source: RecordedValue, result: RecordedValue | None) -> bool:
        """Whether a convolution that reads this would better read it channels-last."""
        return (
            result is not None
            and result.dtype in self.dtypes
            and source.storage not in self.moved
            and len(source.size) in (4, 5)
            and 0 not in source.size
            and source.stride == _plain(source.size)
            and not _alike(source.size, source.stride, _last(source.size))
            and self._movable(result)
        )

    def _with_weight(self, call: RecordedCall, place: int) -> RecordedCall:
        """The call on a channels-last copy of its weight, one for forward and backward."""
        weight, source = call.args[place], call.args[place - 1]
        if source.storage not in self.moved or weight.storage in self.written or weight.stride != _plain(weight.size):
            return call
        if _alike(weight.size, weight.stride, _last(weight.size)) or weight.offset != 0:
            return call
        assert self.weights is not None
        held = self.copies
        self.copies = self.weights
        call = self._with_argument(call, place)
        self.copies = held
        return call

    def _with_argument(self, call: RecordedCall, place: int) -> RecordedCall:
        """The call on a channels-last copy of its argument."""
        source = call.args[place]
        copy = self.copies.get(source.storage)
        if copy is None or copy.size != source.size:
            twin = fl.empty_strided(source.size, _last(source.size), dtype=source.dtype, device="meta")
            copy = self.trace.value(twin)
            self.calls.append(self._copy(source, copy, call.backward))
            if _product(source.size) == _product(self.trace.roots[source.storage].size):
                self.copies[source.storage] = copy
        self.moved.add(copy.storage)
        self.on[copy.storage] = [copy]
        args = (*call.args[:place], copy, *call.args[place + 1 :])
        return _replaced(call, args, call.kwargs)

    @staticmethod
    def _copy(source: RecordedValue, target: RecordedValue, backward: bool) -> RecordedCall:
        call = RecordedCall(fl.ops.aten.clone.default, (source,), {"memory_format": _format_of(target)}, [target], [])
        call.backward = backward
        return call

    def _move(self, value: RecordedValue) -> None:
        """From here on the value's storage lies channels-last."""
        self.moved.add(value.storage)
        for v in self.on[value.storage]:
            self.trace.kept.append(v.tensor)
            v.stride = _last(v.size)
            v.tensor = fl.empty_strided(v.size, v.stride, dtype=v.dtype, device="meta")


def _format_of(value: RecordedValue) -> Any:
    if value.stride == _plain(value.size):
        return fl.contiguous_format
    return fl.channels_last if len(value.size) == 4 else fl.channels_last_3d


def _replaced(call: RecordedCall, args: Any, kwargs: Any) -> RecordedCall:
    replaced = RecordedCall(call.op, args, kwargs, call.results, call.writes)
    replaced.backward = call.backward
    return replaced


def _answer(call: RecordedCall) -> list[Any] | None:
    """What the operator returns for its arguments as they lie now, without data; None if it refuses them."""
    try:
        answer = call.op(*_tensors(call.args), **{k: _tensors(v) for k, v in call.kwargs.items()})
    except RuntimeError:
        return None
    return list(answer) if isinstance(answer, (list, tuple)) else [answer]


def _tensors(item: Any) -> Any:
    if isinstance(item, RecordedValue):
        return item.tensor.detach()
    if isinstance(item, (list, tuple)):
        return type(item)(_tensors(x) for x in item)
    if isinstance(item, fl.device):
        return fl.device("meta")
    return item


# ---------------------------------------------------------------- rows


def straighten_rows(trace: Trace) -> None:
    """Makes pointwise results contiguous, in place, where results of their size are reduced along rows that are not."""
    ends = [*trace.inputs, *trace.outputs, *trace.tangents, *trace.gradients]
    fixed = {v.storage for v in ends if v is not None} | {v.storage for v, _ in trace.constants.values()}
    fixed |= {v.storage for call in trace.calls for v in call.writes}
    turned = {
        value.storage: value
        for call in trace.calls
        if _is_pointwise(call)
        for value in call.results
        if value is not None and value.storage not in fixed and _is_turned(value)
    }
    if not turned:
        return
    on: dict[int, list[RecordedValue]] = {}
    for value in trace.values.values():
        on.setdefault(value.storage, []).append(value)
    reduced = {v.size for call in trace.calls for v in call.reads if v.storage in turned and _reduces_rows(call, v)}
    for storage, value in turned.items():
        whole = all((v.size, v.stride, v.offset) == (value.size, value.stride, 0) for v in on[storage])
        if value.size in reduced and whole:
            for v in on[storage]:
                trace.kept.append(v.tensor)
                v.stride = _plain(v.size)
                v.tensor = fl.empty_strided(v.size, v.stride, dtype=v.dtype, device="meta")


def _is_pointwise(call: RecordedCall) -> bool:
    record = records.find(call.op)
    return call.op._opname in ("_to_copy", "clone") or (record is not None and record.kind == "pointwise")


def _is_turned(value: RecordedValue) -> bool:
    """Whether a dense value of three dimensions or more has its last one outside; channels-last images do not count."""
    size, stride = value.size, value.stride
    if len(size) < 3 or size[-1] == 1 or stride[-1] == 1 or value.offset != 0 or 0 in size:
        return False
    if len(size) > 3 and _alike(size, stride, _last(size)):
        return False
    order = sorted((s, n) for n, s in zip(size, stride) if n != 1)
    dense = all(s == _product(n for _, n in order[:i]) for i, (s, _) in enumerate(order))
    return dense and _alike(value.size, value.stride, value.tensor.stride())


def _reduces_rows(call: RecordedCall, value: RecordedValue) -> bool:
    """Whether a call reduces a value along its last dimension alone."""
    record = records.find(call.op)
    if record is None or record.kind != "reduction" or not call.results or call.results[0] is None:
        return False
    size = call.results[0].size
    return size in ((*value.size[:-1], 1), value.size[:-1])
