"""The rules that each stage keeps, checked in tests and with FLAMBEAU_VERIFY=1.

A broken rule is a mistake of the compiler, so that checks raise AssertionError and say which rule and where.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall
from flambeau._inductor.memory import ALIGNMENT, MemoryPlan, extent, overlapping
from flambeau._inductor.schedule import Group

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


def verify_lowered(items: Iterable[Loop | OperatorCall], given: Iterable[Buffer]) -> None:
    known = set(given)
    for item in items:
        if isinstance(item, OperatorCall):
            for buffer, _ in item.reads:
                _rule(buffer in known, "what a call reads was made before", item.call)
            known |= {b for b in item.results if b is not None} | set(item.written)
            continue
        for access in item.reads:
            if access.buffer.source == "index":
                continue  # the number of an element: no memory
            _rule(access.buffer in known, "what a loop reads was made before", item.name)
            if access.buffer.source != "random":
                _inside(access, item.domain, item.name)
        _inside(item.write, item.domain, item.name)
        _rule(item.write.buffer not in known, "a loop writes a buffer that is new", item.name)
        if item.reduce is not None:
            kept = item.reduce.kept
            _rule(len(kept) == len(item.domain), "a fold says of each dimension whether it is kept", item.name)
            _rule(
                all(k or s == 0 for k, s in zip(kept, item.write.strides)),
                "a fold writes once for what it folds",
                item.name,
            )
        known.add(item.write.buffer)


def verify_scheduled(steps: Iterable[Group | OperatorCall], given: Iterable[Buffer], loops: int) -> None:
    known = set(given)
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
                made = access.buffer in known or access.buffer.source == "index"
                _rule(made, "a group runs after those that make what it reads", member.loop.name)
                _rule(
                    len(access.strides) == len(step.dims), "accesses are over the group's dimensions", member.loop.name
                )
            known.add(member.loop.write.buffer)
        _rule(
            set(step.made) == {m.loop.write.buffer for m in step.members}, "a group makes what its members write", step
        )
    _rule(seen == loops, "every loop is in one group", f"{seen} of {loops}")


def verify_memory(memory_plan: MemoryPlan) -> None:
    blocks, offsets = list(memory_plan.blocks.values()), [memory_plan.offsets[m] for m in memory_plan.blocks]
    _rule(overlapping(blocks, offsets) is None, "what lives at the same time lies apart", memory_plan)
    for block, offset in zip(blocks, offsets):
        _rule(offset % ALIGNMENT == 0, "places are aligned", offset)
        _rule(offset >= 0 and offset + block.bytes <= memory_plan.bytes, "places are inside of the arena", offset)
    for made, taken in memory_plan.overwrites.items():
        place = memory_plan.place_of(taken)
        _rule(extent(made) <= extent(place), "what takes a place has room there", (made, place))


def verify_planned(program: tuple[Any, ...]) -> None:
    inputs, slots, constants, steps, results, written, *_ = program
    filled = set(range(inputs + len(constants)))

    def used(where: Any, *wanted: int) -> None:
        for slot in wanted:
            _rule(slot in filled, "a slot is filled before it is used, and not let go", (slot, where))

    for step in steps:
        kind = step[0]
        if kind in ("allocate", "place", "random"):
            filled.add(step[1])
        elif kind == "view":
            used(step, step[2])
            filled.add(step[1])
        elif kind == "own":
            used(step, step[1])
        elif kind == "release":
            used(step, *step[1])
            filled.difference_update(step[1])
        elif kind == "call":
            used(step[:2], *step[4])
            filled |= {slot for slot in step[5] if slot >= 0}
        elif kind in ("launch", "together"):
            for launch in [step] if kind == "launch" else step[1]:
                used(launch[0], *(slot for slot in launch[2][::2] if slot >= 0))
        elif kind == "kernel":
            used(step[0], *step[5][::2])
    used("results", *(slot for slot in results if slot >= 0))
    _rule(all(0 <= slot < slots for slot in filled), "slots are numbered from nought", slots)
    _rule(all(0 <= i < inputs for i in written), "only inputs are said to be written", written)
