"""Sinking: groups that wait until what they make is read, and then run in the kernel that reads it.

Loops are scheduled in the order of the program. The activation of a gate is computed before the product that it is multiplied
by, and would be a kernel of its own; moved behind that product, it joins the multiplication.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.schedule import Group, Level, new_group

__all__ = ["sink_groups"]

_FAR = 12  # steps that a group is moved at most: what it reads lives as much longer


def sink_groups(steps: list[Group | OperatorCall]) -> None:
    """Joins groups of pointwise loops with later ones that read what they make, in place."""
    for at in range(len(steps) - 2, -1, -1):
        group = steps[at]
        if not isinstance(group, Group) or not _may_wait(group):
            continue
        reader = _first_reader(steps, at)
        if reader is None or not _may_pass(group, steps[at + 1 : reader]):
            continue
        later = steps[reader]
        joined = _joined(group, later) if isinstance(later, Group) and _moves_no_more(group, later) else None
        if joined is not None:
            steps[reader] = joined
            del steps[at]


def _may_wait(group: Group) -> bool:
    """Whether a group has pointwise loops only, which write nothing in place."""
    return all(m.level is Level.POINT and m.loop.write.buffer.memory is m.loop.write.buffer for m in group.members)


def _reads(step: Group | OperatorCall) -> set[Buffer]:
    """What a step reads from memory."""
    if isinstance(step, OperatorCall):
        return {buffer for buffer, _ in step.reads}
    return {a.buffer for m in step.members for a in m.reads if a.buffer not in step.made}


def _first_reader(steps: list[Group | OperatorCall], at: int) -> int | None:
    group = steps[at]
    assert isinstance(group, Group)
    near = range(at + 1, min(at + 1 + _FAR, len(steps)))
    return next((i for i in near if not _reads(steps[i]).isdisjoint(group.made)), None)


def _may_pass(group: Group, others: Iterable[Group | OperatorCall]) -> bool:
    """Whether none of the others writes what the group reads."""
    memories = {buffer.memory for buffer in _reads(group)}
    for other in others:
        if isinstance(other, OperatorCall):
            written: Iterable[Buffer] = other.written
        else:
            written = [buffer for buffer in other.made if buffer.memory is not buffer]
        if any(buffer.memory in memories for buffer in written):
            return False
    return True


def _bytes(buffers: Iterable[Buffer]) -> int:
    return sum(math.prod(b.size) * int(b.dtype.itemsize) for b in buffers)


def _moves_no_more(group: Group, later: Group) -> bool:
    """Whether one kernel reads no more than the later group does now; what the first one makes, it has."""
    reads = _reads(later)
    return group.apart == later.apart and _bytes(_reads(group) - reads) <= _bytes(reads & set(group.made))


def _joined(group: Group, later: Group) -> Group | None:
    """One group with the loops of both; None where they do not fit together."""
    loops = [m.loop for m in (*group.members, *later.members)]
    joined_group = new_group(loops[0])
    for loop in loops[1:]:
        placement = joined_group.admits(loop, columns=True)
        if placement is None:
            return None
        joined_group.add(loop, placement)
    return joined_group
