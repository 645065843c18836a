"""Partition: what forward saves for backward, and what backward computes again.

A value that backward needs is either saved or computed again from others that are. Which of them to save is a minimum
cut: a network with an edge of the value's size in bytes through each value, from what cannot be computed again to what
backward reads. Calls that are one pass over their operands are computed again, for they fuse with their users and read
what backward reads anyway. With a memory budget below 1, dearer ones are too, those that free most bytes for each
operation first, until what is saved fits into that fraction.

In:  a joint trace, its forward and backward calls. Out: the backward calls, among them the forward calls to repeat, each
     before the first that needs it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from flambeau._functorch.aot.trace import RecordedCall, RecordedValue, Trace
from flambeau.backends import records
from flambeau.ops import tags

__all__ = ["always_the_same", "partition", "saved"]

_LOOP_COST, _PRODUCT_COST = 1.0, 64.0  # of an element, in simple operations
_LONGEST_CHAIN = 4  # of sums that are computed again one after the other


def partition(
    trace: Trace,
    forward: list[RecordedCall],
    backward: list[RecordedCall],
    budget: float = 1.0,
    save_shared_operands: bool = False,
) -> list[RecordedCall]:
    """The calls of backward, with those of forward that it repeats. With `save_shared_operands`, what matrix products of both
    read is saved, and so is what backward needs of the results, which the caller mostly keeps until then."""
    network = _Network(trace, forward, backward, keeps_outputs=save_shared_operands)
    cheap = [call for call in forward if network.may_repeat(call) and _is_one_pass(call)]
    if save_shared_operands and budget >= 1:
        twice = _operands(forward) & _operands(backward)
        cheap = [call for call in cheap if not any(v is not None and v.storage in twice for v in call.results)]
    if save_shared_operands:
        cheap = _without_long_chains(cheap)
    repeated, least = network.minimum_cut(cheap)
    if budget < 1:
        dear = [c for c in forward if network.may_repeat(c) and not _is_one_pass(c) and _has(c, "recomputable")]
        dear.sort(key=lambda c: -_bytes(c) / _cost(c))
        allowed = least * max(budget, 0.0)
        repeated, _ = _first([cheap + dear[:n] for n in range(len(dear) + 1)], network.minimum_cut, allowed)
    return _placed(repeated, backward, trace.gradients)


def _without_long_chains(calls: list[RecordedCall]) -> list[RecordedCall]:
    """The calls without some that are the end of a chain of sums: the sums along a residual stream, computed again for the
    last layer, would all be in memory at once."""
    sums: dict[int, int] = {}  # by storage: sums and the like on the longest way to it
    chains = []
    for call in calls:
        result = call.results[0]
        assert result is not None
        way = max((sums.get(v.storage, 0) for v in call.reads), default=0)
        way += sum(_numel(v) == _numel(result) for v in call.reads) > 1
        if way <= _LONGEST_CHAIN:
            chains.append(call)
            sums.update((v.storage, way) for v in call.results if v is not None)
    return chains


def _placed(
    repeated: list[RecordedCall], backward: list[RecordedCall], gradients: list[RecordedValue | None]
) -> list[RecordedCall]:
    """The calls of backward, each repeated call before the first that needs it."""
    maker = {v.storage: (at, call) for at, call in enumerate(repeated) for v in call.results if v is not None}
    placed: list[RecordedCall] = []

    def place(values: list[RecordedValue]) -> None:
        repeats: dict[int, RecordedCall] = {}
        waiting = [v.storage for v in values]
        while waiting:
            at, call = maker.get(waiting.pop(), (-1, None))
            if call is not None and at not in repeats and at not in done:
                repeats[at] = call
                waiting += [v.storage for v in call.reads]
        done.update(repeats)
        placed.extend(repeats[at] for at in sorted(repeats))

    done: set[int] = set()
    for call in backward:
        place(call.reads)
        placed.append(call)
    place([g for g in gradients if g is not None])
    return placed


def _first(
    options: list[list[RecordedCall]],
    cut: Callable[[list[RecordedCall]], tuple[list[RecordedCall], int]],
    allowed: float,
) -> tuple[list[RecordedCall], int]:
    """The first option that saves no more than is allowed, or the last; later ones save less."""
    low, high = 0, len(options) - 1
    while low < high:
        middle = (low + high) // 2
        if cut(options[middle])[1] <= allowed:
            high = middle
        else:
            low = middle + 1
    return cut(options[low])


def saved(backward: list[RecordedCall], trace: Trace) -> list[RecordedValue]:
    """The storages that backward reads and does not make itself, each as the value it was made as."""
    computed = {v.storage for call in backward for v in call.results if v is not None}
    computed |= {v.storage for v in trace.tangents}
    constants = {v.storage for v, _ in trace.constants.values()}
    values: dict[int, RecordedValue] = {}
    read = [v for call in backward for v in call.reads] + [g for g in trace.gradients if g is not None]
    for value in read:
        if value.storage not in computed and value.storage not in constants:
            values.setdefault(value.storage, trace.roots[value.storage])
    return list(values.values())


def _operands(calls: list[RecordedCall]) -> set[int]:
    """What products and the like read from memory. Where time counts more than memory, what those of forward and backward
    both read is kept: it is there, and repeating would not only compute but write it again."""
    return {v.storage for call in calls if _has(call, "matmul", "convolution", "attention") for v in call.reads}


def _has(call: RecordedCall, *wanted: str) -> bool:
    """Whether the operator has one of the tags."""
    return call.op._full_name in tags.operators(*wanted)


def _is_one_pass(call: RecordedCall) -> bool:
    """Whether a call is a loop that fuses with others. Functions of complex numbers take long."""
    record = records.find(call.op)
    pointwise = record is not None and record.kind == "pointwise" and not any(v.dtype.is_complex for v in call.reads)
    return pointwise or _has(call, "copy", "fill")


def always_the_same(call: RecordedCall) -> bool:
    """Whether a call is known to give the same for the same arguments: it draws no random numbers and has no effects."""
    record = records.find(call.op)
    known = record is not None and record.kind in ("pointwise", "reduction")
    return known or _has(call, "copy", "fill", "recomputable")


def _bytes(call: RecordedCall) -> int:
    return sum(_size(v) for v in call.results if v is not None)


def _size(value: RecordedValue) -> int:
    return _numel(value) * int(value.dtype.itemsize)


def _numel(value: RecordedValue) -> int:
    return int(math.prod(value.size))


def _cost(call: RecordedCall) -> float:
    """Operations, roughly: products cost by the elements of an operand for each element of the result."""
    each = _PRODUCT_COST if _has(call, "matmul") else _LOOP_COST
    each = _PRODUCT_COST * 8 if _has(call, "convolution", "attention") else each
    return 1 + each * sum(_numel(v) for v in call.reads)


class _Network:
    """The storages of a joint trace, and who makes and needs them."""

    def __init__(
        self, trace: Trace, forward: list[RecordedCall], backward: list[RecordedCall], keeps_outputs: bool
    ) -> None:
        self.trace = trace
        self.forward = forward
        self.maker = {v.storage: call for call in forward for v in call.results if v is not None}
        self.written = {v.storage for call in (*forward, *backward) for v in call.writes}
        # Another kernel may round the last bit of a value otherwise, and the largest element is to be found again.
        self.compared = {v.storage for call in backward if _has(call, "comparison") for v in call.reads}
        self.needed = [v.storage for v in saved(backward, trace)]
        self.free = {v.storage for v in (*trace.inputs, *(v for v, _ in trace.constants.values()))}
        if keeps_outputs:
            self.free |= {v.storage for v in trace.outputs if v is not None}

    def may_repeat(self, call: RecordedCall) -> bool:
        """Whether nothing that the call touches is written, so that it computes the same again, to the last bit or so."""
        results = {r.storage for r in call.results if r is not None}
        touched = results | {v.storage for v in call.reads}
        return not (call.writes or None in call.results or touched & self.written or results & self.compared)

    def minimum_cut(self, repeatable: list[RecordedCall]) -> tuple[list[RecordedCall], int]:
        """The calls to repeat, of those that may be, in order; and the bytes that are saved then."""
        again = {id(call) for call in repeatable}
        flow = _Flow()
        nodes: dict[int, int] = {}  # by storage: where its edge starts; it ends at the next node
        sizes: dict[int, int] = {}

        def node(storage: int) -> int:
            if storage not in nodes:
                nodes[storage] = flow.node()
                flow.node()
                sizes[storage] = _size(self.trace.roots[storage])
                flow.edge(nodes[storage], nodes[storage] + 1, sizes[storage])
                waiting.append(storage)
            return nodes[storage]

        waiting: list[int] = []
        for storage in self.needed:
            if storage not in self.free:  # that is alive anyway
                flow.edge(node(storage) + 1, flow.sink, math.inf)
        while waiting:
            storage = waiting.pop()
            call = self.maker.get(storage)
            if call is None or id(call) not in again:
                flow.edge(flow.source, nodes[storage], math.inf)
                continue
            for source in {v.storage for v in call.reads} - self.free:
                flow.edge(node(source) + 1, nodes[storage], math.inf)
        after = flow.side_of_the_sink()
        cut_storages = [s for s, n in nodes.items() if after[n + 1] and not after[n]]
        wanted = {id(self.maker[s]) for s, n in nodes.items() if after[n] and s in self.maker}
        return [call for call in self.forward if id(call) in wanted], sum(sizes[s] for s in cut_storages)


class _Flow:
    """A flow network; the largest flow is found in phases of shortest paths."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = []  # of each node; edge e and its way back e ^ 1 are neighbours
        self.to: list[int] = []
        self.left: list[float] = []  # capacity that is left
        self.source, self.sink = self.node(), self.node()

    def node(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, a: int, b: int, capacity: float) -> None:
        for start, end, room in ((a, b, capacity), (b, a, 0)):
            self.edges[start].append(len(self.to))
            self.to.append(end)
            self.left.append(room)

    def side_of_the_sink(self) -> list[bool]:
        """For each node whether it can still reach the sink when the flow is largest: the cut that is nearest to it."""
        while (levels := self._levels()) is not None:
            self._push(levels)
        reaching = [False] * len(self.edges)
        reaching[self.sink] = True
        waiting = [self.sink]
        while waiting:
            for e in self.edges[waiting.pop()]:
                a = self.to[e]
                if not reaching[a] and self.left[e ^ 1] > 0:
                    reaching[a] = True
                    waiting.append(a)
        return reaching

    def _levels(self) -> list[int] | None:
        """How far each node is from the source; None when the sink is out of reach."""
        levels = [-1] * len(self.edges)
        levels[self.source] = 0
        waiting = deque([self.source])
        while waiting:
            a = waiting.popleft()
            for e in self.edges[a]:
                if self.left[e] > 0 and levels[self.to[e]] < 0:
                    levels[self.to[e]] = levels[a] + 1
                    waiting.append(self.to[e])
        return levels if levels[self.sink] >= 0 else None

    def _push(self, levels: list[int]) -> None:
        """Fills shortest paths until none is left."""
        tried = [0] * len(self.edges)  # edges of each node that lead nowhere
        path: list[int] = []
        at = self.source
        while True:
            if at == self.sink:
                room = min(self.left[e] for e in path)
                for e in path:
                    self.left[e] -= room
                    self.left[e ^ 1] += room
                path.clear()
                at = self.source
                continue
            while tried[at] < len(self.edges[at]):
                e = self.edges[at][tried[at]]
                if self.left[e] > 0 and levels[self.to[e]] == levels[at] + 1:
                    break
                tried[at] += 1
            if tried[at] < len(self.edges[at]):
                path.append(e)
                at = self.to[e]
            elif path:
                at = self.to[path.pop() ^ 1]
                tried[at] += 1
            else:
                return
