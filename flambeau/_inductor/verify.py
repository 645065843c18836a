"""The rules that each stage keeps, checked in tests and with FLAMBEAU_VERIFY=1.

A broken rule is a mistake of the compiler, so that checks raise AssertionError and say which rule and where.
"""

from __future__ import annotations

from collections.abc import Iterable

from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall
from flambeau._inductor.joining import guarded_loads
from flambeau._inductor.memory import ALIGNMENT, MemoryPlan, extent, lay_out, overlapping
from flambeau._inductor.schedule import Group
from flambeau._inductor.steps import (
    AllocateStep,
    ArenaTensorStep,
    CallStep,
    ConcurrentLoopsStep,
    KernelStep,
    LoopStep,
    ProgramSpec,
    RandomStateStep,
    ReleaseStep,
    Step,
    UnshareStep,
    ViewStep,
)

__all__ = ["verify_lowered", "verify_memory", "verify_planned", "verify_scheduled"]


def _rule(holds: bool, rule: str, where: object) -> None:
    if not holds:
        raise AssertionError(f"[compiler] broken rule: {rule}; at {where}")


def _numel(sizes: Iterable[int]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def _inside(access: Access, domain: tuple[int, ...], where: object) -> None:
    _rule(len(access.strides) == len(domain), "an access has a stride for each dimension of its loop", where)
    if 0 not in domain:
        last = access.offset + sum((n - 1) * s for n, s in zip(domain, access.strides) if s > 0)
        first = access.offset + sum((n - 1) * s for n, s in zip(domain, access.strides) if s < 0)
        end = (last + 1) * access.buffer.dtype.itemsize
        _rule(first >= 0 and end <= extent(access.buffer.memory), "an access stays inside of its memory", where)


def verify_lowered(items: Iterable[Loop | OperatorCall], inputs: Iterable[Buffer]) -> None:
    known = set(inputs)
    for item in items:
        if isinstance(item, OperatorCall):
            for buffer, _ in item.reads:
                _rule(buffer in known, "what a call reads was made before", item.call)
            known |= {b for b in item.results if b is not None} | set(item.written)
            continue
        guarded = guarded_loads(item.expr)
        for i, access in enumerate(item.reads):
            if access.buffer.source == "index":
                continue  # the number of an element: no memory
            _rule(access.buffer in known, "what a loop reads was made before", item.name)
            if access.buffer.source != "random" and i not in guarded:
                _inside(access, item.domain, item.name)
        _inside(item.write, item.domain, item.name)
        _rule(item.write.buffer not in known, "a loop writes a buffer that is new", item.name)
        if item.reduce is not None:
            kept_dims = item.reduce.kept
            _rule(
                len(kept_dims) == len(item.domain), "a reduction says of each dimension whether it is kept", item.name
            )
            _rule(
                all(k or s == 0 for k, s in zip(kept_dims, item.write.strides)),
                "a reduction writes once for what it reduces",
                item.name,
            )
        known.add(item.write.buffer)


def verify_scheduled(steps: Iterable[Group | OperatorCall], inputs: Iterable[Buffer], loops: int) -> None:
    known = set(inputs)
    seen = 0
    for step in steps:
        if isinstance(step, OperatorCall):
            for buffer, _ in step.reads:
                _rule(buffer in known, "a call runs after those that make what it reads", step.call)
            known |= {b for b in step.results if b is not None} | set(step.written)
            continue
        for member in step.members:
            seen += 1
            for access in member.reads:
                is_known = access.buffer in known or access.buffer.source == "index"
                _rule(is_known, "a group runs after those that make what it reads", member.loop.name)
                _rule(
                    len(access.strides) == len(step.dims), "accesses are over the group's dimensions", member.loop.name
                )
            known.add(member.loop.write.buffer)
        _rule(
            set(step.made) == {m.loop.write.buffer for m in step.members}, "a group makes what its members write", step
        )
    _rule(seen == loops, "every loop is in one group", f"{seen} of {loops}")


def verify_memory(plan: MemoryPlan) -> None:
    blocks = list(plan.blocks.values())
    offsets, total = lay_out(blocks)
    _rule(overlapping(blocks, offsets) is None, "what lives at the same time lies apart", plan)
    for block, offset in zip(blocks, offsets):
        _rule(offset % ALIGNMENT == 0, "places are aligned", offset)
        _rule(offset >= 0 and offset + block.bytes <= total, "places are inside of the arena", offset)
    for buffer, memory in plan.overwrites.items():
        place = plan.place_of(memory)
        _rule(extent(buffer) <= extent(place), "what takes a place has room there", (buffer, place))


def verify_planned(program: ProgramSpec) -> None:
    count = program.inputs + len(program.constants)
    filled = set(range(count))
    for step in program.steps:
        for slot in _slots_read(step):
            _rule(slot in filled, "a slot is filled before it is used, and not let go", (slot, step))
        if isinstance(step, ReleaseStep):
            filled.difference_update(step.slots)
        elif isinstance(step, CallStep):
            filled |= {slot for slot in step.results if slot >= 0}
        elif isinstance(step, (AllocateStep, ViewStep, ArenaTensorStep, RandomStateStep)):
            filled.add(step.slot)
    for slot in program.outputs:
        _rule(slot < 0 or slot in filled, "results are in slots that are filled", slot)
    _rule(all(0 <= slot < program.slots for slot in filled), "slots are numbered from 0", program.slots)
    _rule(all(0 <= i < program.inputs for i in program.written), "only inputs are said to be written", program.written)


def _slots_read(step: Step) -> list[int]:
    if isinstance(step, ViewStep):
        return [step.base]
    if isinstance(step, UnshareStep):
        return [step.slot]
    if isinstance(step, ReleaseStep):
        return step.slots
    if isinstance(step, CallStep):
        return step.tensors
    if isinstance(step, ConcurrentLoopsStep):
        return [slot for loop in step.loops for slot in _slots_read(loop)]
    if isinstance(step, (LoopStep, KernelStep)):
        return [slot for slot, _ in step.pointers if slot >= 0]
    return []
