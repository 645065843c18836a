"""Scheduling: which loops run together as one kernel.

A group runs its loops point by point over one domain, so that a value computed by one loop and used by another stays in
a register. Its dimensions may be divided into rows and columns: folds along the columns give a number for each row, which
later passes over the same row use (softmax, layer norm); folds along the rows give a vector as long as a row, complete
when the group is through (the gradient of a bias), and on a GPU what is computed from such vectors alone follows there.

Loops are taken in the order of the program. A loop joins the latest group that it fits and that comes after everything it
reads, if they share what they read, are small, or are both needed by a loop that follows soon; else it starts a group of
its own. What is written between two groups can therefore never be read too early.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau._inductor.ir import Access, Buffer, Loop, Operator, refine, split_strides

__all__ = ["Group", "Member", "schedule"]

AFTER = ("rows", "column")  # levels that are known when a group is through
MOST_BUFFERS = 48  # of one group: more would only spill registers


@dataclass
class Member:
    """A loop in a group, its accesses expressed over the group's dimensions."""

    loop: Loop
    level: (
        str  # "full": every point; "row": once a row; "fold": along columns; "rows": along rows; "column": after those
    )
    reads: list[Access]
    write: Access


@dataclass
class Group:
    dims: tuple[int, ...]
    split: int | None = None  # the first column dimension, once a fold has divided them
    members: list[Member] = field(default_factory=list)
    made: dict[Buffer, Member] = field(default_factory=dict)
    buffers: set[Buffer] = field(default_factory=set)
    takes: dict[Buffer, Buffer] = field(default_factory=dict)  # what is made over what is read for the last time

    def _with_dims(self, dims: tuple[int, ...], split: int | None) -> None:
        """Divides dimensions further."""
        if dims != self.dims:
            for member in self.members:
                member.reads = [_refined(a, self.dims, dims) for a in member.reads]
                member.write = _refined(member.write, self.dims, dims)
            self.dims = dims
        self.split = split

    def admits(self, loop: Loop, columns: bool = False) -> Any:
        """How the loop would become a member, or None: (level, dims, split, reads, write). With `columns`, what follows
        folds along rows may be one."""
        touched = {a.buffer for a in loop.reads} | {loop.write.buffer}
        if len(self.buffers | touched) > MOST_BUFFERS:
            return None
        found = (columns and self._as_column(loop)) or self._as_row(loop) or self._as_full(loop)
        if found is None:
            return None
        level, dims, _, reads, _ = found
        return found if self._reads_match(level, dims, reads) else None

    def _as_full(self, loop: Loop) -> Any:
        dims = refine(self.dims, loop.domain)
        if dims is None:
            return None
        split = None if self.split is None else _position(self.dims, dims, self.split)
        level = "full"
        if loop.reduce is not None:
            folded = _fold_split(loop, dims)
            if folded is None:
                return None
            level, at = folded
            if split is not None and at != split:
                return None
            split = at
        reads = [_refined(a, loop.domain, dims) for a in loop.reads]
        return level, dims, split, reads, _refined(loop.write, loop.domain, dims)

    def _as_row(self, loop: Loop) -> Any:
        if self.split is None or loop.reduce is not None:
            return None
        rows, columns = self.dims[: self.split], self.dims[self.split :]
        if _numel(columns) == 1:
            return None
        refined = refine(rows, loop.domain)
        if refined is None:
            return None
        dims = refined + columns
        pad = (0,) * len(columns)
        return (
            "row",
            dims,
            len(refined),
            [_padded(_refined(a, loop.domain, refined), pad) for a in loop.reads],
            _padded(_refined(loop.write, loop.domain, refined), pad),
        )

    def _as_column(self, loop: Loop) -> Any:
        if self.split is None or loop.reduce is not None:
            return None
        if not any(a.buffer in self.made and self.made[a.buffer].level in AFTER for a in loop.reads):
            return None
        rows, columns = self.dims[: self.split], self.dims[self.split :]
        refined = refine(columns, loop.domain)
        if refined is None or _numel(columns) == 1:
            return None
        pad = (0,) * len(rows)

        def below(access: Access) -> Access:
            return Access(access.buffer, access.offset, pad + split_strides(access.strides, loop.domain, refined))

        return "column", rows + refined, self.split, list(map(below, loop.reads)), below(loop.write)

    def _reads_match(self, level: str, dims: tuple[int, ...], reads: list[Access]) -> bool:
        """Whether everything that the loop reads of this group's results lies where it was computed."""
        for access in reads:
            member = self.made.get(access.buffer)
            if member is None:
                continue
            if (member.level in AFTER) != (level == "column") or _refined(member.write, self.dims, dims) != access:
                return False
            if level == "row" and member.level == "full":
                return False
        return True

    def add(self, loop: Loop, found: Any) -> None:
        level, dims, split, reads, write = found
        self._with_dims(dims, split)
        member = Member(loop, level, reads, write)
        self.members.append(member)
        self.made[loop.write.buffer] = member
        self.buffers |= {a.buffer for a in loop.reads} | {loop.write.buffer}


def _numel(dims: tuple[int, ...]) -> int:
    total = 1
    for n in dims:
        total *= n
    return total


def _refined(access: Access, old: tuple[int, ...], new: tuple[int, ...]) -> Access:
    return Access(access.buffer, access.offset, split_strides(access.strides, old, new))


def _padded(access: Access, pad: tuple[int, ...]) -> Access:
    return Access(access.buffer, access.offset, access.strides + pad)


def _position(old: tuple[int, ...], new: tuple[int, ...], at: int) -> int:
    """Where a boundary between dimensions is after they were divided further."""
    before = _numel(old[:at])
    covered, place = 1, 0
    while covered < before:
        covered *= new[place]
        place += 1
    return place


def _fold_split(loop: Loop, dims: tuple[int, ...]) -> tuple[str, int] | None:
    """Whether a fold runs along the last or the first dimensions, and the boundary; None for one in the middle."""
    assert loop.reduce is not None
    kept = [k for k, n in zip(loop.reduce.kept, loop.domain) if n != 1]
    sizes = tuple(n for n in loop.domain if n != 1)
    if not any(kept):
        return "fold", 0
    if all(kept):
        return "fold", len(dims)
    boundary = kept.index(not kept[0])
    if any(k == kept[0] for k in kept[boundary:]):
        return None
    return ("fold" if kept[0] else "rows"), _position(sizes, dims, boundary)


def schedule(items: list[Loop | Operator], last: list[Loop], columns: bool = False) -> list[Group | Operator]:
    """Groups and operator calls in the order in which they run; `last` are loops that come after all others. With
    `columns` what follows folds along rows may be in their group."""
    readers: dict[Buffer, list[Loop]] = {}
    for loop in (i for i in items if isinstance(i, Loop)):
        for access in loop.reads:
            readers.setdefault(access.buffer, []).append(loop)
    steps: list[Group | Operator] = []
    made_by: dict[Buffer, int] = {}  # the step that makes each buffer
    first_open = 0  # the first step that may still be joined
    read_by: dict[Buffer, int] | None = None  # the last step that reads each memory
    for item in [*items, None, *last]:
        if item is None:
            first_open = len(steps)
            continue
        if first_open and not columns and isinstance(item, Loop):
            read_by = read_by or _read_by(steps)
            if _write_where_made(item, steps, made_by, read_by, last):
                continue
        if isinstance(item, Operator):
            steps.append(item)
            here = len(steps) - 1
            for buffer in [b for b in item.results if b is not None] + item.written:
                made_by[buffer] = here
            continue
        earliest = max([made_by.get(a.buffer, -1) for a in item.reads], default=-1)
        place = None
        for at in range(len(steps) - 1, max(earliest, first_open) - 1, -1):
            group = steps[at]
            if (
                isinstance(group, Group)
                and (found := group.admits(item, columns)) is not None
                and (_worth(group, item) or _meet(group, item, readers))
            ):
                place = at
                group.add(item, found)
                break
        if place is None:
            group = Group(tuple(n for n in item.domain if n != 1))
            found = group.admits(item)
            assert found is not None or item.reduce is not None
            if found is None:
                steps.append(_alone(item))
                place = len(steps) - 1
            else:
                group.add(item, found)
                steps.append(group)
                place = len(steps) - 1
        made_by[item.write.buffer] = place
    return steps


def _read_by(steps: list[Group | Operator]) -> dict[Buffer, int]:
    found: dict[Buffer, int] = {}
    for at, step in enumerate(steps):
        if isinstance(step, Operator):
            found.update((b.memory, at) for b, _ in step.reads)
        else:
            found.update((a.buffer.memory, at) for m in step.members for a in m.reads)
    return found


def _write_where_made(
    loop: Loop, steps: list[Group | Operator], made_by: dict[Buffer, int], read_by: dict[Buffer, int], last: list[Loop]
) -> bool:
    """Lets the group that computes the last state of an input write it there at once, where nobody reads the input later
    and each point of the group reads just the element that it writes."""
    from flambeau._inductor.arrange import passes

    at = made_by.get(loop.reads[0].buffer, -1)
    group = steps[at] if at >= 0 else None
    memory = loop.write.buffer.memory
    if not isinstance(group, Group) or read_by.get(memory, -1) > at:
        return False
    if any(a.buffer.memory is memory for other in last for a in other.reads):
        return False
    found = group.admits(loop)
    if found is None or found[0] != "full" or not all(found[4].strides):
        return False
    _, dims, _, _, write = found
    for member in group.members:
        for access in member.reads:
            if access.buffer.memory is not memory:
                continue
            here = _refined(access, group.dims, dims)
            same = (here.buffer.dtype, here.offset, here.strides) == (memory.dtype, write.offset, write.strides)
            if member.level not in ("full", "fold", "rows") or not same:
                return False
            group.takes[loop.write.buffer] = memory
    depth, count = passes(group)
    if loop.write.buffer in group.takes and depth[loop.reads[0].buffer] != count - 1:
        del group.takes[loop.write.buffer]
        return False
    group.add(loop, found)
    made_by[loop.write.buffer] = at
    return True


def _alone(loop: Loop) -> Group:
    """A group for a fold over dimensions in the middle: the kept ones first, then the folded ones."""
    assert loop.reduce is not None
    order = [i for i, k in enumerate(loop.reduce.kept) if k] + [i for i, k in enumerate(loop.reduce.kept) if not k]
    moved = Loop(
        loop.name,
        tuple(loop.domain[i] for i in order),
        loop.expr,
        [Access(a.buffer, a.offset, tuple(a.strides[i] for i in order)) for a in loop.reads],
        Access(loop.write.buffer, loop.write.offset, tuple(loop.write.strides[i] for i in order)),
        loop.compute,
        type(loop.reduce)(
            loop.reduce.init,
            loop.reduce.combine,
            loop.reduce.finish,
            loop.reduce.accumulate,
            tuple(sorted(loop.reduce.kept, reverse=True)),
        ),
    )
    group = Group(tuple(n for n in moved.domain if n != 1))
    found = group.admits(moved)
    assert found is not None
    group.add(moved, found)
    return group


def _worth(group: Group, loop: Loop) -> bool:
    """Loops that share nothing gain nothing from one kernel, unless they are small."""
    touched = {a.buffer for a in loop.reads}
    return bool(touched & group.buffers) or _numel(group.dims) <= 4096


def _meet(group: Group, loop: Loop, readers: dict[Buffer, list[Loop]]) -> bool:
    """Whether a loop of the same size that follows soon needs what this one makes and what the group makes."""
    size = _numel(loop.domain)
    near = [loop]
    for _ in range(6):
        near = [r for n in near for r in readers.get(n.write.buffer, ()) if _numel(r.domain) == size][:16]
        if any(a.buffer in group.made for r in near for a in r.reads):
            return True
    return False
