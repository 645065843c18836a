"""Planning: scheduled groups and operator calls become the steps of a native program over slots.

Memory that leaves the program has a slot, and so have windows on memory that operators need, made when they are first
used, and what operators return. A slot is let go after its last use. Everything else is a place in the arena of a run
(`memory.py`), named by its block.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, cast

import flambeau as fl
from flambeau._functorch.aot.trace import RecordedValue
from flambeau._inductor import config
from flambeau._inductor.concurrent import assign_steps
from flambeau._inductor.ir import Buffer, OperatorCall, ScalarInput
from flambeau._inductor.lower import Lowering
from flambeau._inductor.memory import MemoryPlan, extent, plan_memory, plan_overwrites
from flambeau._inductor.printers import Launch
from flambeau._inductor.schedule import Group, Level
from flambeau._inductor.steps import (
    AllocateStep,
    ArenaTensorStep,
    CallStep,
    ConcurrentLoopsStep,
    Location,
    LoopStep,
    Offer,
    ProgramSpec,
    RandomStateStep,
    ReleaseStep,
    Step,
    UnshareStep,
    ViewStep,
)

__all__ = ["Plan"]


class Plan:
    """Steps under construction."""

    def __init__(
        self,
        lowering: Lowering,
        inputs: list[Buffer],
        constants: list[tuple[Buffer, Any]],
        values: list[RecordedValue],
        device: Any,
        replay: bool,
        donated: Iterable[Buffer] = (),
    ) -> None:
        self.device = device
        self.donated = list(donated)  # inputs that may be written over when they are read for the last time
        self.replay = replay  # the program is recorded by the device, and runs as one launch
        self.lowering = lowering
        self.is_input = {id(v) for v in values}.__contains__
        self.inputs = len(inputs)
        self.constants = [tensor for _, tensor in constants]
        self.slots: dict[Any, int] = {}
        self.count = 0
        for buffer in [*inputs, *(b for b, _ in constants)]:
            self._new(buffer.memory)
        self.steps: list[Step] = []
        self.uses: list[list[int]] = []  # slots that each step touches
        self.memory_plan = MemoryPlan()
        self.times: list[int] = []  # the step of each scheduled item
        self.launches: list[tuple[Group | OperatorCall, list[Launch]]] = []

    def _new(self, key: Any) -> int:
        self.slots[key] = self.count
        self.count += 1
        return self.count - 1

    def _step(self, step: Step, uses: list[int]) -> None:
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
                step: Step = ViewStep(slot, base, value.size, value.stride, value.offset, value.dtype)
                self._step(step, [slot, base])
            else:
                location = (~self.memory_plan.number_of(place), value.offset * value.dtype.itemsize)
                self._step(ArenaTensorStep(slot, location, value.size, value.stride, value.dtype), [slot])
        return self.slots[key]

    def run(self, scheduled: list[Group | OperatorCall], outputs: list[RecordedValue | None]) -> ProgramSpec:
        """The program: what the native side reads."""
        printer = self.lowering.printer
        scheduled = printer.arranged(scheduled)
        needed = self._needed(scheduled, outputs)
        stored = [[b for b in item.made if b in needed] if isinstance(item, Group) else [] for item in scheduled]
        small = [isinstance(item, Group) and printer.small(item) for item in scheduled]
        self.times = assign_steps(scheduled, stored, small)
        if config.allow_buffer_reuse:
            self._plan_memory(scheduled, stored, outputs)
        leaving = {self.lowering.current[v.storage] for v in outputs if v is not None}
        work = [
            (item, set(buffers) if isinstance(item, Group) else leaving.intersection(b for b in item.results if b))
            for item, buffers in zip(scheduled, stored)
        ]
        printed = printer.launches_by_step(work, self.times)
        self.launches = [(item, launches) for item, launches in zip(scheduled, printed) if launches is not None]
        for _, same_step in itertools.groupby(zip(self.times, scheduled, stored, printed), key=lambda row: row[0]):
            self._scheduled([row[1:] for row in same_step])
        results: list[int] = []
        for v in outputs:
            results.append(-1 if v is None else self._result(v, results))
        touched = {self.slots.get(b.memory) for b in needed if b.memory is not b and b.source != "recast"}
        written = [i for i in range(self.inputs) if i in touched]
        return ProgramSpec(
            inputs=self.inputs,
            slots=self.count,
            constants=self.constants,
            steps=self._with_releases(results, written),
            outputs=results,
            written=written,
            device=self.device,
            replay=self.replay,
            blocks=list(self.memory_plan.blocks.values()),
            room=self._room(),
        )

    def _plan_memory(
        self, scheduled: list[Group | OperatorCall], stored: list[list[Buffer]], outputs: list[RecordedValue | None]
    ) -> None:
        escaping = {self.lowering.current[v.storage].memory for v in outputs if v is not None}
        if self.lowering.printer.host_memory:
            self.memory_plan = plan_memory(scheduled, stored, escaping, self.times)
        elif self.lowering.printer.overwrites and not (config.max_autotune or config.max_autotune_gemm):
            self.memory_plan = plan_overwrites(scheduled, stored, escaping, self.donated, self.times)
        overwrites = self.memory_plan.overwrites
        for item in scheduled:
            if isinstance(item, Group):
                item.overwrites |= {b: overwrites[b] for b in item.made if b in overwrites}

    def _room(self) -> list[tuple[int, int]]:
        """What is written over memory outside of the arena must fit there."""
        plan = self.memory_plan
        places = {buffer: plan.place_of(memory) for buffer, memory in plan.overwrites.items()}
        return [(extent(buffer), extent(place)) for buffer, place in places.items() if place not in plan.blocks]

    def _scheduled(self, items: list[tuple[Group | OperatorCall, list[Buffer], list[Launch] | None]]) -> None:
        """The steps of one point of time: of one item, or of several groups that run concurrently."""
        if len(items) > 1:
            for _, buffers, _ in items:
                for buffer in buffers:
                    self._allocate(buffer)
            together = [launch for *_, launches in items for launch in launches or ()]
            for some in [together] if self.lowering.printer.host_memory else [[launch] for launch in together]:
                self._launch(some)
            return
        ((item, buffers, launches),) = items
        if launches is not None:
            for result in buffers if isinstance(item, Group) else item.results if launches else ():
                if result is not None:
                    self._allocate(result)
            for launch in launches:
                self._launch([launch])
        elif isinstance(item, OperatorCall):
            self._operator(item)

    def _result(self, value: RecordedValue, others: list[int]) -> int:
        """The slot of a result. Each is a tensor of its own, which may get a history, unless it is an input itself."""
        slot = self.window(self.lowering.current[value.storage], value)
        is_given = slot < self.inputs + len(self.constants)
        if is_given and self.is_input(id(value)):
            return slot
        if is_given or slot in others:
            fresh = self.count
            self.count += 1
            self._step(ViewStep(fresh, slot, value.size, value.stride, 0, value.dtype), [fresh, slot])
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
                self._step(RandomStateStep(slot), [slot])
            return
        tensors = [self.window(b, v) for b, v in item.reads if not isinstance(v, ScalarInput)]
        scalars = self._scalars(item)
        results = [-1 if b is None else self._new(b) for b in item.results]
        formals = item.call.op._schema.arguments
        args = tuple(_argument(a, formal) for a, formal in zip(item.call.args, formals))
        kwargs = {k: _with_tensors(v) for k, v in item.call.kwargs.items()}
        offers = [self._offer(b) for b in item.results if b is not None and b in self.memory_plan.blocks]
        self._step(
            CallStep(item.call.op, args, kwargs, tensors, results, scalars, offers, self._layouts(item)),
            tensors + [slot for _, slot in scalars] + [r for r in results if r >= 0],
        )

    def _offer(self, result: Buffer) -> Offer:
        return Offer((~self.memory_plan.number_of(result), 0), extent(result), self.slots[result])

    def _layouts(self, item: OperatorCall) -> list[Any]:
        """Strides that results must have, where kernels of a device may choose others than the recorded ones."""
        if self.lowering.printer.keeps_layouts:
            return []
        return [() if b is None else b.stride for b in item.results]

    def _scalars(self, item: OperatorCall) -> list[tuple[int, int]]:
        """Positions of the arguments that are floats read from memory, each with its slot."""
        slots = {id(v): self.window(b, v) for b, v in item.reads if isinstance(v, ScalarInput)}
        scalars = []
        for at, argument in enumerate(item.call.op._schema.arguments if slots else ()):
            value = item.call.args[at] if at < len(item.call.args) else item.call.kwargs.get(argument.name)
            if isinstance(value, ScalarInput):
                scalars.append((at, slots[id(value)]))
        return scalars

    def _launch(self, launches: list[Launch]) -> None:
        """A step of one kernel, or of several that run concurrently."""
        steps = []
        uses: list[int] = []
        for launch in launches:
            for buffer in launch.scratch:
                self._allocate(buffer)
            pointers = [self._location(buffer, offset) for buffer, offset in launch.pointers]
            uses += [slot for slot, _ in pointers if slot >= 0]
            steps.append(launch.step(pointers))
        self._step(steps[0] if len(steps) == 1 else ConcurrentLoopsStep(cast(list[LoopStep], steps)), uses)

    def _location(self, buffer: Buffer, offset: int) -> Location:
        """Where an element of a buffer lies: in a slot, or in a block of the arena."""
        place = self.memory_plan.place_of(buffer.memory)
        slot = self.slots.get(place)
        return (~self.memory_plan.number_of(place) if slot is None else slot), offset * buffer.dtype.itemsize

    def _allocate(self, buffer: Buffer) -> None:
        taken = self.memory_plan.overwrites.get(buffer)
        if taken is not None:
            place = self.memory_plan.place_of(taken)
            if place.source in ("operator", "input") and taken is place:
                self._step(UnshareStep(self.slots[place]), [self.slots[place]])
        elif buffer.memory not in self.slots and buffer not in self.memory_plan.blocks:
            slot = self._new(buffer)
            self._step(AllocateStep(slot, buffer.size, buffer.stride, buffer.dtype), [slot])

    def _with_releases(self, results: list[int], written: list[int]) -> list[Step]:
        """The steps with slots let go after their last use: inputs too, which a run that owns them drops. Constants, results
        and inputs that are written are kept."""
        constants = range(self.inputs, self.inputs + len(self.constants))
        never_released = {*results, *written, *constants}
        last: dict[int, int] = {}
        for at, uses in enumerate(self.uses):
            for slot in uses:
                last[slot] = at
        dying: dict[int, list[int]] = {}
        for slot, at in last.items():
            if slot not in never_released:
                dying.setdefault(at, []).append(slot)
        steps: list[Step] = []
        for at, step in enumerate(self.steps):
            steps.append(step)
            if at in dying:
                steps.append(ReleaseStep(dying[at]))
        return steps


def _argument(value: Any, formal: Any) -> Any:
    """A positional argument as it is parsed: a scalar that stands for a tensor has to be a tensor."""
    if isinstance(value, ScalarInput) and str(formal.type) == "Tensor":
        return fl.scalar_tensor(_with_tensors(value), device="cpu")._mark_wrapped_number()
    return _with_tensors(value)


def _with_tensors(item: Any) -> Any:
    """Arguments with meta tensors for values: they show where tensors stand."""
    if isinstance(item, ScalarInput):
        return 0.0 if item.dtype.is_floating_point else 0
    if isinstance(item, RecordedValue):
        return item.tensor
    if isinstance(item, (list, tuple)):
        return type(item)(_with_tensors(x) for x in item)
    return item
