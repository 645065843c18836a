"""Planning: scheduled groups and operator calls become the steps of a native program over slots.

Memory that leaves the program has a slot, and so have windows on memory that operators need, made when they are first
used, and what operators return. A slot is let go after its last use. Everything else is a place in the arena of a run
(`memory.py`).
"""

from __future__ import annotations

import itertools
from typing import Any

from flambeau._functorch.aot.trace import RecordedValue
from flambeau._inductor import config, cpp
from flambeau._inductor.concurrent import assign_steps
from flambeau._inductor.ir import Buffer, OperatorCall, ScalarInput
from flambeau._inductor.lower import Lowering
from flambeau._inductor.memory import MemoryPlan, extent, plan_memory
from flambeau._inductor.printers import CppPrinter, Launch
from flambeau._inductor.schedule import Group, Level

__all__ = ["Plan"]

SMALL_WORK = 1 << 15  # operations for which a kernel runs on one thread: kGrain of core/parallel.h


class Plan:
    """Steps under construction."""

    def __init__(
        self,
        lowering: Lowering,
        inputs: list[Buffer],
        constants: list[tuple[Buffer, Any]],
        given: list[RecordedValue],
        device: Any,
        replay: bool,
    ) -> None:
        self.device = device
        self.replay = replay  # the program is recorded by the device, and runs as one launch
        self.lowering = lowering
        self.is_input = {id(v) for v in given}.__contains__
        self.inputs = len(inputs)
        self.constants = [tensor for _, tensor in constants]
        self.slots: dict[Any, int] = {}
        self.count = 0
        for buffer in [*inputs, *(b for b, _ in constants)]:
            self._new(buffer.memory)
        self.steps: list[Any] = []
        self.uses: list[list[int]] = []  # slots that each step touches
        self.memory_plan = MemoryPlan()
        self.times: list[int] = []  # the step of each scheduled item

    def _new(self, key: Any) -> int:
        self.slots[key] = self.count
        self.count += 1
        return self.count - 1

    def _step(self, step: tuple[Any, ...], uses: list[int]) -> None:
        self.steps.append(step)
        self.uses.append(uses)

    def window(self, buffer: Buffer, value: RecordedValue) -> int:
        """The slot of a value: that of its memory, or of a window on it."""
        memory = buffer.memory
        place = self.memory_plan.place_of(memory)
        base = self.slots.get(place)
        whole = (place.dtype, 0, place.size, place.stride)
        if base is not None and (value.dtype, value.offset, value.size, value.stride) == whole:
            return base
        key = (memory, value.dtype, value.size, value.stride, value.offset)
        if key not in self.slots:
            slot = self._new(key)
            if base is not None:
                self._step(("view", slot, base, value.size, value.stride, value.offset, value.dtype), [slot, base])
            else:
                offset = self.memory_plan.offsets[place] + value.offset * value.dtype.itemsize
                self._step(("place", slot, offset, value.size, value.stride, value.dtype), [slot])
        return self.slots[key]

    def run(self, scheduled: list[Group | OperatorCall], outputs: list[RecordedValue | None]) -> tuple[Any, ...]:
        """The program: what the native side reads."""
        needed = self._needed(scheduled, outputs)
        stored = [[b for b in item.made if b in needed] if isinstance(item, Group) else [] for item in scheduled]
        on_cpu = self.device.type == "cpu" and isinstance(self.lowering.printer, CppPrinter)
        apart = not on_cpu or config.max_autotune or config.max_autotune_pointwise  # those are measured one by one
        small = [not apart and isinstance(item, Group) and cpp.work_of(item) < SMALL_WORK for item in scheduled]
        self.times = assign_steps(scheduled, stored, small)
        if config.allow_buffer_reuse and on_cpu:
            escaping = {self.lowering.current[v.storage].memory for v in outputs if v is not None}
            self.memory_plan = plan_memory(scheduled, stored, escaping, self.times)
            for item in scheduled:
                if isinstance(item, Group):
                    item.overwrites |= {
                        b: old for b in item.made if (old := self.memory_plan.overwrites.get(b)) is not None
                    }
        leaving = {self.lowering.current[v.storage] for v in outputs if v is not None}
        work = [
            (item, set(buffers) if isinstance(item, Group) else leaving.intersection(b for b in item.results if b))
            for item, buffers in zip(scheduled, stored)
        ]
        made = self.lowering.printer.launches(work)
        self.launches = [(item, launches) for item, launches in zip(scheduled, made) if launches is not None]
        for _, found in itertools.groupby(zip(self.times, scheduled, stored, made), key=lambda row: row[0]):
            rows = [row[1:] for row in found]
            if len(rows) > 1:
                self._launches([b for _, buffers, _ in rows for b in buffers], [k for *_, ks in rows for k in ks or ()])
                continue
            item, buffers, launches = rows[0]
            if launches is not None:
                for buffer in buffers if isinstance(item, Group) else item.results if launches else ():
                    if buffer is not None:
                        self._allocate(buffer)
                for launch in launches:
                    self._launches([], [launch])
            elif isinstance(item, OperatorCall):
                self._operator(item)
        results: list[int] = []
        for v in outputs:
            results.append(-1 if v is None else self._result(v, results))
        touched = {self.slots.get(b.memory) for b in needed if b.memory is not b and b.source != "recast"}
        written = [i for i in range(self.inputs) if i in touched]
        return (
            self.inputs,
            self.count,
            self.constants,
            self._with_releases(results),
            results,
            written,
            self.device,
            self.replay,
            self.memory_plan.bytes,
        )

    def _result(self, value: RecordedValue, others: list[int]) -> int:
        """The slot of a result. Each is a tensor of its own, which may get a history, unless it is an input itself."""
        slot = self.window(self.lowering.current[value.storage], value)
        given = slot < self.inputs + len(self.constants)
        if given and self.is_input(id(value)):
            return slot
        if given or slot in others:
            fresh = self.count
            self.count += 1
            self._step(("view", fresh, slot, value.size, value.stride, 0, value.dtype), [fresh, slot])
            return fresh
        return slot

    def _needed(self, scheduled: list[Group | OperatorCall], outputs: list[RecordedValue | None]) -> set[Buffer]:
        """Buffers that somebody outside of the group that makes them reads."""
        needed = {self.lowering.current[v.storage] for v in outputs if v is not None}
        for item in scheduled:
            if isinstance(item, OperatorCall):
                needed |= {b for b, _ in item.reads}
                needed |= set(item.written)
                continue
            for member in item.members:
                needed |= {a.buffer for a in member.reads if a.buffer not in item.made}
                if (
                    member.level is Level.COLUMN_REDUCTION
                    or member.loop.write.buffer.memory is not member.loop.write.buffer
                ):
                    needed.add(member.loop.write.buffer)
        return needed

    def _operator(self, item: OperatorCall) -> None:
        if item.call is None:
            for result in item.results:
                slot = self._new(result)
                self._step(("random", slot), [slot])
            return
        given = [self.window(b, v) for b, v in item.reads if not isinstance(v, ScalarInput)]
        numbers = self._numbers(item)
        results = [-1 if b is None else self._new(b) for b in item.results]
        args = _with_tensors(item.call.args)
        kwargs = {k: _with_tensors(v) for k, v in item.call.kwargs.items()}
        offered = [n for b in item.results if b in self.memory_plan.offsets for n in self._offer(b)]
        self._step(
            ("call", item.call.op, args, kwargs, given, results, numbers, offered, self._layouts(item)),
            given + numbers[1::2] + [r for r in results if r >= 0],
        )

    def _offer(self, result: Any) -> tuple[int, int, int]:
        """Where in the arena an operator may make a result, its bytes and its slot."""
        return self.memory_plan.offsets[result], extent(result), self.slots[result]

    def _layouts(self, item: OperatorCall) -> list[Any]:
        """Strides that results must have, where kernels of a device may choose others than the recorded ones."""
        if self.device.type == "cpu":
            return []
        return [() if b is None else b.stride for b in item.results]

    def _numbers(self, item: OperatorCall) -> list[int]:
        """Positions of the arguments that are floats read from memory, each followed by its slot."""
        found = []
        slots = {id(v): self.window(b, v) for b, v in item.reads if isinstance(v, ScalarInput)}
        for at, argument in enumerate(item.call.op._schema.arguments if slots else ()):
            value = item.call.args[at] if at < len(item.call.args) else item.call.kwargs.get(argument.name)
            if isinstance(value, ScalarInput):
                found += [at, slots[id(value)]]
        return found

    def _launches(self, made: list[Any], launches: list[Launch]) -> None:
        """A step of one kernel, or of several side by side."""
        for buffer in made:
            self._allocate(buffer)
        steps = []
        uses: list[int] = []
        for launch in launches:
            for buffer in launch.scratch:
                self._allocate(buffer)
            pointers = []
            for buffer, offset in launch.pointers:
                slot, first = self._pointer(buffer.memory)
                pointers += [slot, first + offset * buffer.dtype.itemsize]
                if slot >= 0:
                    uses.append(slot)
            steps.append(launch.step(pointers))
        self._step(steps[0] if len(steps) == 1 else ("together", steps), uses)

    def _pointer(self, memory: Buffer) -> tuple[int, int]:
        """The slot of a memory, or -1 for the arena, and where in that it begins."""
        place = self.memory_plan.place_of(memory)
        slot = self.slots.get(place)
        return (-1, self.memory_plan.offsets[place]) if slot is None else (slot, 0)

    def _allocate(self, buffer: Buffer) -> None:
        taken = self.memory_plan.overwrites.get(buffer)
        if taken is not None:
            place = self.memory_plan.place_of(taken)
            if place.source == "operator" and taken is place:
                self._step(("own", self.slots[place]), [self.slots[place]])
        elif buffer.memory not in self.slots and buffer not in self.memory_plan.offsets:
            slot = self._new(buffer)
            self._step(("allocate", slot, buffer.size, buffer.stride, buffer.dtype), [slot])

    def _with_releases(self, results: list[int]) -> list[Any]:
        """The steps with slots let go after their last use; inputs, constants and results are kept."""
        kept = set(results) | set(range(self.inputs + len(self.constants)))
        last: dict[int, int] = {}
        for at, uses in enumerate(self.uses):
            for slot in uses:
                last[slot] = at
        dying: dict[int, list[int]] = {}
        for slot, at in last.items():
            if slot not in kept:
                dying.setdefault(at, []).append(slot)
        made: list[Any] = []
        for at, step in enumerate(self.steps):
            made.append(step)
            if at in dying:
                made.append(("release", dying[at]))
        return made


def _with_tensors(item: Any) -> Any:
    """Arguments with meta tensors for values: they show where tensors stand."""
    if isinstance(item, ScalarInput):
        return 0.0 if item.dtype.is_floating_point else 0
    if isinstance(item, RecordedValue):
        return item.tensor
    if isinstance(item, (list, tuple)):
        return type(item)(_with_tensors(x) for x in item)
    return item
