"""Scheduling: which loops run together as one kernel.

A group runs its loops point by point over one domain, so that a value computed by one loop and used by another stays in
a register. Its dimensions may be divided into rows and columns. A row reduction runs along the columns and gives a value
for each row, which later passes over the same row use (softmax, layer norm). A column reduction runs along the rows and
gives a vector as long as a row, complete when the group ends (the gradient of a bias); where the printer can, what is
computed from such vectors alone follows in the same group.

Loops are taken in the order of the program. A loop joins the latest group that it fits and that comes after everything it
reads, if they share what they read, are small, or are both needed by a loop that follows soon; else it starts a group of
its own. What is written between two groups can therefore never be read too early.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field, replace

from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall, chosen_loads, moved_loads, refine, split_strides

__all__ = ["AFTER_GROUP", "EVERY_POINT", "Group", "Level", "Member", "new_group", "schedule"]


class Level(enum.Enum):
    """Where in a group a loop runs, and how many values it has there."""

    POINT = "point"  # at every point
    ROW = "row"  # once for each row, from values of the row
    ROW_REDUCTION = "row reduction"  # along the columns of a row: a value for each row
    COLUMN_REDUCTION = "column reduction"  # along the rows: a value for each column
    COLUMN = "column"  # once for each column, from column reductions


AFTER_GROUP = (Level.COLUMN_REDUCTION, Level.COLUMN)  # known when all rows of a group are done
EVERY_POINT = (Level.POINT, Level.ROW_REDUCTION, Level.COLUMN_REDUCTION)  # read their operands at every point
MAX_BUFFERS = 48  # of one group: more would only spill registers


@dataclass
class Member:
    """A loop in a group, its accesses expressed over the group's dimensions."""

    loop: Loop
    level: Level
    reads: list[Access]
    write: Access


@dataclass
class Placement:
    """How a loop would become a member of a group: its level and accesses, and the group's dimensions then."""

    level: Level
    dims: tuple[int, ...]
    split: int | None
    reads: list[Access]
    write: Access
    halves: int = 0  # as the group has it then


@dataclass
class Group:
    """Loops that run as one kernel."""

    dims: tuple[int, ...]
    split: int | None = None  # the first column dimension, once a reduction has divided them
    members: list[Member] = field(default_factory=list)
    made: dict[Buffer, Member] = field(default_factory=dict)
    buffers: set[Buffer] = field(default_factory=set)
    # What is written over memory that is read for the last time, and that memory.
    overwrites: dict[Buffer, Buffer] = field(default_factory=dict)
    apart: int = 0  # of its loops
    # Loops over rows read what this many rows further, or before, made: the halves of blocks of rows, as a rotation does.
    halves: int = 0

    def _with_dims(self, dims: tuple[int, ...], split: int | None) -> None:
        """Divides dimensions further."""
        if dims != self.dims:
            for member in self.members:
                member.reads = [_refined(a, self.dims, dims) for a in member.reads]
                member.write = _refined(member.write, self.dims, dims)
            self.dims = dims
        self.split = split

    def admits(self, loop: Loop, columns: bool = False) -> Placement | None:
        """How the loop would become a member; None where it cannot. With `columns`, what follows column reductions may be
        one."""
        touched = {a.buffer for a in loop.reads} | {loop.write.buffer}
        if len(self.buffers | touched) > MAX_BUFFERS:
            return None
        placement = (columns and self._per_column(loop)) or self._per_row(loop) or self._per_point(loop)
        if placement is None or (loop.apart != self.apart and (loop.apart or placement.level is not Level.ROW)):
            return None
        placement.halves = self._halves_read(placement, loop) if columns else 0
        return placement if self._reads_match(placement, loop) else None

    def _per_point(self, loop: Loop) -> Placement | None:
        dims = refine(self.dims, loop.domain)
        if dims is None:
            return None
        split = None if self.split is None else _position(self.dims, dims, self.split)
        level = Level.POINT
        if loop.reduce is not None:
            direction = _reduction_split(loop, dims)
            if direction is None:
                return None
            level, at = direction
            if split is not None and at != split:
                return None
            split = at
        reads = [_refined(a, loop.domain, dims) for a in loop.reads]
        return Placement(level, dims, split, reads, _refined(loop.write, loop.domain, dims))

    def _per_row(self, loop: Loop) -> Placement | None:
        if self.split is None or loop.reduce is not None:
            return None
        rows, columns = self.dims[: self.split], self.dims[self.split :]
        if math.prod(columns) == 1:
            return None
        refined = refine(rows, loop.domain)
        if refined is None:
            return None
        pad = (0,) * len(columns)

        def over_rows(access: Access) -> Access:
            return Access(access.buffer, access.offset, split_strides(access.strides, loop.domain, refined) + pad)

        reads = list(map(over_rows, loop.reads))
        return Placement(Level.ROW, refined + columns, len(refined), reads, over_rows(loop.write))

    def _per_column(self, loop: Loop) -> Placement | None:
        if self.split is None or loop.reduce is not None:
            return None
        if not any(a.buffer in self.made and self.made[a.buffer].level in AFTER_GROUP for a in loop.reads):
            return None
        rows, columns = self.dims[: self.split], self.dims[self.split :]
        refined = refine(columns, loop.domain)
        if refined is None or math.prod(columns) == 1:
            return None
        pad = (0,) * len(rows)

        def over_columns(access: Access) -> Access:
            return Access(access.buffer, access.offset, pad + split_strides(access.strides, loop.domain, refined))

        reads = list(map(over_columns, loop.reads))
        return Placement(Level.COLUMN, rows + refined, self.split, reads, over_columns(loop.write))

    def _halves_read(self, placement: Placement, loop: Loop) -> int:
        """How many rows apart the other halves are that a loop over rows reads of products' results; zero where it reads others,
        or other rows."""
        split, halves = placement.split, self.halves
        if placement.level is not Level.ROW or self.apart >= 0 or not split or loop.reduce is not None:
            return 0
        for loads, (number, half) in chosen_loads(loop.expr):
            reads = [placement.reads[at] for at in loads]
            members = [self.made.get(a.buffer) for a in reads]
            if not any(members):
                continue
            index = placement.reads[number]
            along = tuple(int(d == split - 1) for d in range(len(placement.dims)))
            if members[0] is None or members[0] is not members[1] or members[0].level in AFTER_GROUP:
                return 0
            write = _refined(members[0].write, self.dims, placement.dims)
            step = half * write.strides[split - 1]
            same = all(a.strides == write.strides for a in reads)
            apart = [a.offset - write.offset for a in reads] == [step, -step]
            if not same or not apart or index.buffer.source != "index" or (index.offset, index.strides) != (0, along):
                return 0
            if placement.dims[split - 1] != 2 * half or halves not in (0, half) or members[0].level is Level.POINT:
                return 0
            halves = half
        return halves

    def _reads_match(self, placement: Placement, loop: Loop) -> bool:
        """Whether everything that the loop reads of this group's results lies where it was computed."""
        level = placement.level
        moved = moved_loads(loop.expr)
        swapped = [at for loads, _ in chosen_loads(loop.expr) for at in loads] if placement.halves else []
        for at, access in enumerate(placement.reads):
            member = self.made.get(access.buffer)
            if member is None:
                continue
            if at in moved:
                return False
            if at in swapped:
                continue
            if (member.level in AFTER_GROUP) != (level is Level.COLUMN):
                return False
            if member.loop.place is not None or _refined(member.write, self.dims, placement.dims) != access:
                return False
            if level is Level.ROW and member.level is Level.POINT:
                return False
        return True

    def add(self, loop: Loop, placement: Placement) -> None:
        """Makes the loop a member as `admits` said."""
        self._with_dims(placement.dims, placement.split)
        self.halves = placement.halves or self.halves
        member = Member(loop, placement.level, placement.reads, placement.write)
        self.members.append(member)
        self.made[loop.write.buffer] = member
        self.buffers |= {a.buffer for a in loop.reads} | {loop.write.buffer}


def _refined(access: Access, old: tuple[int, ...], new: tuple[int, ...]) -> Access:
    return Access(access.buffer, access.offset, split_strides(access.strides, old, new))


def _position(old: tuple[int, ...], new: tuple[int, ...], at: int) -> int:
    """Where a boundary between dimensions is after they were divided further."""
    before = math.prod(old[:at])
    covered, place = 1, 0
    while covered < before:
        covered *= new[place]
        place += 1
    return place


def _reduction_split(loop: Loop, dims: tuple[int, ...]) -> tuple[Level, int] | None:
    """Whether a reduction runs along the last or the first dimensions, and the boundary; None for one in the middle."""
    assert loop.reduce is not None
    kept_dims = [k for k, n in zip(loop.reduce.kept, loop.domain) if n != 1]
    sizes = tuple(n for n in loop.domain if n != 1)
    if not any(kept_dims):
        return Level.ROW_REDUCTION, 0
    if all(kept_dims):
        return Level.ROW_REDUCTION, len(dims)
    boundary = kept_dims.index(not kept_dims[0])
    if any(k == kept_dims[0] for k in kept_dims[boundary:]):
        return None
    level = Level.ROW_REDUCTION if kept_dims[0] else Level.COLUMN_REDUCTION
    return level, _position(sizes, dims, boundary)


def schedule(items: list[Loop | OperatorCall], last: list[Loop], columns: bool = False) -> list[Group | OperatorCall]:
    """Groups and operator calls in the order in which they run; `last` are loops that come after all others. With
    `columns` what follows column reductions may be in their group."""
    scheduler = _Scheduler(items, last, columns)
    for item in items:
        scheduler.add(item)
    if columns:
        from flambeau._inductor.sinking import sink_groups

        sink_groups(scheduler.steps)
    scheduler.close_groups()
    for loop in last:
        if columns or not scheduler.write_where_computed(loop):
            scheduler.add(loop)
    return scheduler.steps


class _Scheduler:
    """The steps of a schedule under construction."""

    def __init__(self, items: list[Loop | OperatorCall], last: list[Loop], columns: bool) -> None:
        self.columns = columns
        self.last = last
        self.steps: list[Group | OperatorCall] = []
        self.made_by: dict[Buffer, int] = {}  # the step that makes each buffer
        self.first_open = 0  # the first step that may still be joined
        self.readers: dict[Buffer, list[Loop]] = {}
        self.last_reader: dict[Buffer, int] = {}  # the last step that reads each memory, when groups are closed
        for loop in (i for i in items if isinstance(i, Loop)):
            for access in loop.reads:
                self.readers.setdefault(access.buffer, []).append(loop)

    def add(self, item: Loop | OperatorCall) -> None:
        if isinstance(item, OperatorCall):
            self.steps.append(item)
            for buffer in [b for b in item.results if b is not None] + item.written:
                self.made_by[buffer] = len(self.steps) - 1
            return
        at = self._join(item)
        if at is None:
            self.steps.append(new_group(item))
            at = len(self.steps) - 1
        self.made_by[item.write.buffer] = at

    def _join(self, loop: Loop) -> int | None:
        """Adds the loop to the latest group that it fits and gains from; None where there is none."""
        earliest = max([self.made_by.get(a.buffer, -1) for a in loop.reads], default=-1)
        for at in range(len(self.steps) - 1, max(earliest, self.first_open) - 1, -1):
            group = self.steps[at]
            if not isinstance(group, Group):
                continue
            placement = group.admits(loop, self.columns)
            if placement is not None and (_is_worth_joining(group, loop) or _meet(group, loop, self.readers)):
                group.add(loop, placement)
                return at
        return None

    def close_groups(self) -> None:
        """What is added from now on joins none of the groups so far."""
        self.first_open = len(self.steps)
        for at, step in enumerate(self.steps if self.last else ()):
            if isinstance(step, OperatorCall):
                self.last_reader.update((b.memory, at) for b, _ in step.reads)
            else:
                self.last_reader.update((a.buffer.memory, at) for m in step.members for a in m.reads)

    def write_where_computed(self, loop: Loop) -> bool:
        """Lets the group that computes the last state of an input write it there at once, where nobody reads the input
        later and each point of the group reads just the element that it writes."""
        from flambeau._inductor.iteration import assign_passes

        at = self.made_by.get(loop.reads[0].buffer, -1)
        group = self.steps[at] if at >= 0 else None
        target = loop.write.buffer
        if not isinstance(group, Group) or self.last_reader.get(target.memory, -1) > at:
            return False
        if any(a.buffer.memory is target.memory for other in self.last for a in other.reads):
            return False
        placement = group.admits(loop)
        if placement is None or placement.level is not Level.POINT or not all(placement.write.strides):
            return False
        overwrites = _overwrites(group, target.memory, placement)
        if overwrites is None:
            return False
        pass_of, passes = assign_passes(group)
        if overwrites and pass_of[loop.reads[0].buffer] != passes - 1:
            return False
        if overwrites:
            group.overwrites[target] = target.memory
        group.add(loop, placement)
        self.made_by[target] = at
        return True


def _overwrites(group: Group, memory: Buffer, placement: Placement) -> bool | None:
    """Whether a group reads the memory that a new member writes; None where it reads other elements than are written."""
    reads_memory = False
    write = placement.write
    for member in group.members:
        for access in member.reads:
            if access.buffer.memory is not memory:
                continue
            here = _refined(access, group.dims, placement.dims)
            same = (here.buffer.dtype, here.offset, here.strides) == (memory.dtype, write.offset, write.strides)
            if member.level not in EVERY_POINT or not same:
                return None
            reads_memory = True
    return reads_memory


def new_group(loop: Loop) -> Group:
    """A group of one loop."""
    group = Group(tuple(n for n in loop.domain if n != 1), apart=loop.apart)
    placement = group.admits(loop)
    if placement is None:
        return _alone(loop)
    group.add(loop, placement)
    return group


def _alone(loop: Loop) -> Group:
    """A group for a reduction over dimensions in the middle: the kept ones first, then the reduced ones."""
    assert loop.reduce is not None
    order = [i for i, k in enumerate(loop.reduce.kept) if k] + [i for i, k in enumerate(loop.reduce.kept) if not k]
    moved = replace(
        loop,
        domain=tuple(loop.domain[i] for i in order),
        reads=[Access(a.buffer, a.offset, tuple(a.strides[i] for i in order)) for a in loop.reads],
        write=Access(loop.write.buffer, loop.write.offset, tuple(loop.write.strides[i] for i in order)),
        reduce=replace(loop.reduce, kept=tuple(sorted(loop.reduce.kept, reverse=True))),
    )
    group = Group(tuple(n for n in moved.domain if n != 1), apart=loop.apart)
    placement = group.admits(moved)
    assert placement is not None
    group.add(moved, placement)
    return group


def _is_worth_joining(group: Group, loop: Loop) -> bool:
    """Loops that share nothing gain nothing from one kernel, unless they are small."""
    touched = {a.buffer for a in loop.reads}
    return bool(touched & group.buffers) or math.prod(group.dims) <= 4096


def _meet(group: Group, loop: Loop, readers: dict[Buffer, list[Loop]]) -> bool:
    """Whether a loop of the same size that follows soon needs what this one makes and what the group makes."""
    size = math.prod(loop.domain)
    near = [loop]
    for _ in range(6):
        near = [r for n in near for r in readers.get(n.write.buffer, ()) if math.prod(r.domain) == size][:16]
        if any(a.buffer in group.made for r in near for a in r.reads):
            return True
    return False
