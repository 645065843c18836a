"""Where the intermediate results of a program lie: one arena, and results that take the place of what dies.

A program is for one geometry, so that every size is a number here, and planning again for another one takes less than a
millisecond. All memory that neither leaves the program nor is seen by operators from outside is laid out in one block,
which a run takes when it starts and gives back when it ends: blocks whose lives overlap lie apart, others may share
bytes. Results of operator calls have their place there, too, which the call is offered when it asks for memory.

A loop writes its result over what it reads for the last time, if each point reads just the element that it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flambeau import _C
from flambeau._inductor.ir import Access, Buffer, OperatorCall
from flambeau._inductor.iteration import assign_passes
from flambeau._inductor.schedule import AFTER_GROUP, EVERY_POINT, Group, Level
from flambeau._inductor.steps import Block

__all__ = ["ALIGNMENT", "MemoryPlan", "Block", "extent", "lay_out", "overlapping", "plan_memory", "plan_overwrites"]

ALIGNMENT = _C._ARENA_ALIGNMENT
# Bytes below which memory that operators see comes from the allocator, whose cache is as quick as a place.
SMALL = 1 << 16


@dataclass
class MemoryPlan:
    """Where the memory of a program is."""

    # What was laid out, by the first memory in each block; the order numbers the blocks.
    blocks: dict[Buffer, Block] = field(default_factory=dict)
    overwrites: dict[Buffer, Buffer] = field(default_factory=dict)  # what is made, and the memory whose place it takes
    numbers: dict[Buffer, int] = field(default_factory=dict)

    def place_of(self, memory: Buffer) -> Buffer:
        """The memory whose place another one has, its own in the end."""
        while memory in self.overwrites:
            memory = self.overwrites[memory]
        return memory

    def number_of(self, memory: Buffer) -> int:
        """The number of the block that a memory is the first in."""
        return self.numbers[memory]


def extent(buffer: Buffer) -> int:
    """Bytes from the first to the last element."""
    if 0 in buffer.size:
        return 0
    return int((1 + sum((n - 1) * s for n, s in zip(buffer.size, buffer.stride))) * buffer.dtype.itemsize)


def lay_out(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """The offset of each block in the arena, and the bytes of the arena, as programs lay them out (`csrc/compiled/arena_layout.h`)."""
    offsets, total = _C._lay_out_arena(blocks)
    return offsets, total


def plan_memory(
    scheduled: Sequence[Group | OperatorCall],
    stored: Sequence[Iterable[Buffer]],
    escaping: set[Buffer],
    steps: Sequence[int] | None = None,
) -> MemoryPlan:
    """Lays out what the scheduled items make; `stored` are the buffers that others need of each group, `escaping` is the
    memory that leaves the program, `steps` are the times of the items."""
    steps = range(len(scheduled)) if steps is None else steps
    lives = _Lives(scheduled, stored, steps)
    plan = MemoryPlan()
    for at, item in zip(steps, scheduled):
        if isinstance(item, Group):
            _take_places(at, item, lives, escaping, plan)
    for memory in lives.first:
        place = plan.place_of(memory)
        block = plan.blocks.setdefault(place, Block([], lives.first[place], lives.last[place]))
        block.extents.append(extent(memory))
        block.last = max(block.last, lives.last[memory])
    for memory in lives.first:
        small = memory in lives.seen and extent(memory) < SMALL
        if small or memory in escaping or memory in lives.seen_outside:
            plan.blocks.pop(plan.place_of(memory), None)
    plan.numbers = {memory: number for number, memory in enumerate(plan.blocks)}
    return plan


def plan_overwrites(
    scheduled: Sequence[Group | OperatorCall],
    stored: Sequence[Iterable[Buffer]],
    escaping: set[Buffer],
    donated: Iterable[Buffer],
    steps: Sequence[int],
) -> MemoryPlan:
    """For memory that an accelerator's allocator gives out: only which results take the places of what dies, among that the
    `donated` inputs. A group's kernels run one after the other, so that only the groups take part whose elements one kernel
    reads and writes."""
    lives = _Lives(scheduled, stored, steps, donated)
    plan = MemoryPlan()
    for at, item in zip(steps, scheduled):
        if isinstance(item, Group) and all(m.level in (Level.POINT, *AFTER_GROUP) for m in item.members):
            _take_places(at, item, lives, escaping, plan)
    return plan


class _Lives:
    """The first and the last step that touch each memory that the program makes, or may write to."""

    def __init__(
        self,
        scheduled: Sequence[Group | OperatorCall],
        stored: Sequence[Iterable[Buffer]],
        steps: Sequence[int],
        donated: Iterable[Buffer] = (),
    ) -> None:
        self.first: dict[Buffer, int] = dict.fromkeys(donated, -1)
        self.last: dict[Buffer, int] = dict(self.first)
        self.ends: dict[Buffer, list[Group]] = {}  # groups that read a memory in its last step
        self.stored: dict[int, list[Buffer]] = {}  # by identity of a group
        self.seen: set[Buffer] = set()  # by operators
        self.seen_outside: set[Buffer] = set()  # by operators that may keep what they are given
        for at, item, buffers in zip(steps, scheduled, stored):
            if isinstance(item, OperatorCall):
                if item.call is not None:
                    self._call(at, item)
                continue
            self.stored[id(item)] = list(buffers)
            for buffer in self.stored[id(item)]:
                if buffer.memory is buffer:
                    self.first[buffer] = self.last[buffer] = at
                self._touch(at, buffer)
            for memory in dict.fromkeys(a.buffer.memory for m in item.members for a in m.reads):
                if memory in self.first:
                    self.ends[memory] = [*(self.ends.get(memory, ()) if self.last[memory] == at else ()), item]
                    self.last[memory] = at

    def _touch(self, at: int, buffer: Buffer) -> None:
        if buffer.memory in self.first:
            self.last[buffer.memory] = at

    def _call(self, at: int, item: OperatorCall) -> None:
        for buffer in [*(b for b, _ in item.reads), *item.written]:
            self._touch(at, buffer)
            self.seen.add(buffer.memory)
        for buffer, value in zip(item.results, item.call.results):
            if buffer is not None:
                self.first[buffer] = self.last[buffer] = at
                self.seen.add(buffer)
                if value is None or value.offset != 0:
                    self.seen_outside.add(buffer)
        if "::" in item.call.op._full_name:
            self.seen_outside |= {b.memory for b, _ in item.reads}
            self.seen_outside |= {b.memory for b in [*item.results, *item.written] if b is not None}


def _take_places(at: int, group: Group, lives: _Lives, escaping: set[Buffer], plan: MemoryPlan) -> None:
    """Lets results of a group take the places of what it reads for the last time."""
    reads: dict[Buffer, dict[Access, None]] = {}
    by_row: set[Buffer] = set()
    for member in group.members:
        for access in member.reads:
            memory = access.buffer.memory
            if memory in escaping or memory in lives.seen_outside or access.buffer in group.made:
                continue
            if lives.last.get(memory) == at and len(lives.ends[memory]) == 1:
                reads.setdefault(memory, {})[access] = None
                if member.level not in EVERY_POINT:
                    by_row.add(memory)
    free = {m: next(iter(accesses)) for m, accesses in reads.items() if len(accesses) == 1 and m not in by_row}
    if not free:
        return
    pass_of, passes = assign_passes(group)
    for buffer in lives.stored[id(group)]:
        member = group.made[buffer]
        if buffer.memory is not buffer or member.level is not Level.POINT or pass_of[buffer] != passes - 1:
            continue
        if not all(member.write.strides) or buffer in lives.seen_outside:
            continue
        for memory, access in free.items():
            if _fits(buffer, member.write, memory, access, buffer in escaping, plan):
                plan.overwrites[buffer] = memory
                del free[memory]
                break


def _fits(buffer: Buffer, write: Access, memory: Buffer, read: Access, escapes: bool, plan: MemoryPlan) -> bool:
    place = plan.place_of(memory)
    if {memory.dtype, read.buffer.dtype} != {buffer.dtype}:
        return False
    if (read.offset, read.strides) != (write.offset, write.strides):
        return False
    return extent(buffer) == extent(place) if escapes else extent(buffer) <= extent(place)


def overlapping(blocks: Sequence[Block], offsets: Sequence[int]) -> Any:
    """Two blocks that live at the same time and share bytes, or None."""
    for i, a in enumerate(blocks):
        for j in range(i):
            b = blocks[j]
            live_at_once = a.first <= b.last and b.first <= a.last
            if live_at_once and offsets[i] < offsets[j] + b.bytes and offsets[j] < offsets[i] + a.bytes:
                return j, i
    return None
