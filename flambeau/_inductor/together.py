"""Kernels that run side by side: neighbours in the schedule, each too small for several threads, that know nothing of each
other.

Whatever their shapes are, they become one step of the program, which gives each thread some of them. One step is one point
of time for the planning of memory: what one kernel of it reads for the last time is no place for what another one makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flambeau._inductor.ir import Buffer, Operator
from flambeau._inductor.schedule import Group

__all__ = ["side_by_side", "verify_together"]

MOST = 64  # kernels of a step


def _touched(group: Group, stored: Iterable[Buffer]) -> tuple[set[Buffer], set[Buffer]]:
    """The memory that a group reads, and that it writes."""
    reads = {a.buffer.memory for m in group.members for a in m.reads if a.buffer not in group.made}
    return reads, {b.memory for b in stored}


def side_by_side(
    scheduled: Sequence[Group | Operator], stored: Sequence[Iterable[Buffer]], small: Sequence[bool]
) -> list[int]:
    """For each scheduled item the number of the step that it belongs to; `small` says which groups may share one."""
    steps: list[int] = []
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    count = 0  # kernels of the last step, 0: nobody may join it
    for item, buffers, is_small in zip(scheduled, stored, small):
        joins = False
        if isinstance(item, Group) and is_small:
            reads, writes = _touched(item, buffers)
            joins = 0 < count < MOST and not (reads & written) and not (writes & (read | written))
            if not joins:
                read, written, count = set(), set(), 0
            read |= reads
            written |= writes
            count += 1
        else:
            count = 0
        steps.append((steps[-1] if steps else -1) + (not joins))
    return steps


def verify_together(
    scheduled: Sequence[Group | Operator], stored: Sequence[Iterable[Buffer]], steps: Sequence[int]
) -> bool:
    """Whether kernels that run side by side touch nothing that another of them writes, each pair of them."""
    for i, one in enumerate(scheduled):
        for j in range(i + 1, len(scheduled)):
            if steps[j] != steps[i]:
                break
            other = scheduled[j]
            if isinstance(one, Operator) or isinstance(other, Operator):
                return False
            (reads, writes), (more_reads, more_writes) = _touched(one, stored[i]), _touched(other, stored[j])
            if writes & (more_reads | more_writes) or more_writes & reads:
                return False
    return True
