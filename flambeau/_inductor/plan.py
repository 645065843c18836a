"""Planning: scheduled groups and operator calls become the steps of a native program over slots.

Every block of memory has a slot; windows on it that operators need are slots too, made when they are first used. A slot is
let go after its last use.
"""

from __future__ import annotations

from typing import Any

from flambeau._functorch.aot.trace import Value
from flambeau._inductor.ir import Buffer, Number, Operator
from flambeau._inductor.lower import Lowering
from flambeau._inductor.printers import Launch
from flambeau._inductor.schedule import Group

__all__ = ["Plan"]


class Plan:
    """Steps under construction."""

    def __init__(
        self,
        lowering: Lowering,
        inputs: list[Buffer],
        constants: list[tuple[Buffer, Any]],
        given: list[Value],
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

    def _new(self, key: Any) -> int:
        self.slots[key] = self.count
        self.count += 1
        return self.count - 1

    def _step(self, step: tuple[Any, ...], uses: list[int]) -> None:
        self.steps.append(step)
        self.uses.append(uses)

    def window(self, buffer: Buffer, value: Value) -> int:
        """The slot of a value: its buffer's, or that of a window on it."""
        base = self.slots[buffer.memory]
        memory = buffer.memory
        if value.offset == 0 and value.size == memory.size and value.stride == memory.stride:
            return base
        key = (memory, value.size, value.stride, value.offset)
        if key not in self.slots:
            slot = self._new(key)
            self._step(("view", slot, base, value.size, value.stride, value.offset), [slot, base])
        return self.slots[key]

    def run(self, scheduled: list[Group | Operator], outputs: list[Value | None]) -> tuple[Any, ...]:
        """The program: what the native side reads."""
        needed = self._needed(scheduled, outputs)
        made = self.lowering.printer.launches(
            [(item, {b for b in item.made if b in needed} if isinstance(item, Group) else set()) for item in scheduled]
        )
        self.launches = [(item, launches) for item, launches in zip(scheduled, made) if launches is not None]
        for item, launches in zip(scheduled, made):
            if launches is not None:
                if isinstance(item, Group):
                    self._launches([b for b in item.made if b in needed], launches)
                else:
                    self._launches([b for b in item.results if b is not None], launches)
            elif isinstance(item, Operator):
                self._operator(item)
        results: list[int] = []
        for v in outputs:
            results.append(-1 if v is None else self._result(v, results))
        touched = {self.slots.get(b.memory) for b in needed if b.memory is not b}
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
        )

    def _result(self, value: Value, others: list[int]) -> int:
        """The slot of a result. Each is a tensor of its own, which may get a history, unless it is an input itself."""
        slot = self.window(self.lowering.current[value.storage], value)
        given = slot < self.inputs + len(self.constants)
        if given and self.is_input(id(value)):
            return slot
        if given or slot in others:
            fresh = self.count
            self.count += 1
            self._step(("view", fresh, slot, value.size, value.stride, 0), [fresh, slot])
            return fresh
        return slot

    def _needed(self, scheduled: list[Group | Operator], outputs: list[Value | None]) -> set[Buffer]:
        """Buffers that somebody outside of the group that makes them reads."""
        needed = {self.lowering.current[v.storage] for v in outputs if v is not None}
        for item in scheduled:
            if isinstance(item, Operator):
                needed |= {b for b, _ in item.reads}
                needed |= set(item.written)
                continue
            for member in item.members:
                needed |= {a.buffer for a in member.reads if a.buffer not in item.made}
                if member.level == "rows" or member.loop.write.buffer.memory is not member.loop.write.buffer:
                    needed.add(member.loop.write.buffer)
        return needed

    def _operator(self, item: Operator) -> None:
        if item.call is None:
            slot = self._new(item.results[0])
            self._step(("random", slot), [slot])
            return
        given = [self.window(b, v) for b, v in item.reads if not isinstance(v, Number)]
        numbers = self._numbers(item)
        results = [-1 if b is None else self._new(b) for b in item.results]
        args = _with_tensors(item.call.args)
        kwargs = {k: _with_tensors(v) for k, v in item.call.kwargs.items()}
        self._step(
            ("call", item.call.op, args, kwargs, given, results, numbers),
            given + numbers[1::2] + [r for r in results if r >= 0],
        )

    def _numbers(self, item: Operator) -> list[int]:
        """Positions of the arguments that are floats read from memory, each followed by its slot."""
        found = []
        slots = {id(v): self.window(b, v) for b, v in item.reads if isinstance(v, Number)}
        for at, argument in enumerate(item.call.op._schema.arguments if slots else ()):
            value = item.call.args[at] if at < len(item.call.args) else item.call.kwargs.get(argument.name)
            if isinstance(value, Number):
                found += [at, slots[id(value)]]
        return found

    def _launches(self, made: list[Any], launches: list[Launch]) -> None:
        for buffer in made:
            self._allocate(buffer)
        for launch in launches:
            for buffer in launch.scratch:
                self._allocate(buffer)
            pointers = []
            uses = []
            for buffer, offset in launch.pointers:
                slot = self.slots[buffer.memory]
                pointers += [slot, offset * buffer.dtype.itemsize]
                uses.append(slot)
            self._step(launch.step(pointers), uses)

    def _allocate(self, buffer: Buffer) -> None:
        if buffer.memory not in self.slots:
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
    if isinstance(item, Number):
        return 0.0
    if isinstance(item, Value):
        return item.tensor
    if isinstance(item, (list, tuple)):
        return type(item)(_with_tensors(x) for x in item)
    return item
