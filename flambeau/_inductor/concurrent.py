"""Concurrent kernels: neighbours in the schedule that are independent of each other and too small for several threads.

Whatever their shapes are, they become one step of the program, which gives each thread some of them. One step is one point
of time for the planning of memory: what one of its kernels reads for the last time is not reused by another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flambeau._inductor.ir import Buffer, OperatorCall
from flambeau._inductor.schedule import Group

__all__ = ["assign_steps", "verify_concurrent"]

MAX_KERNELS = 64  # of one step


def _memory_touched(group: Group, stored: Iterable[Buffer]) -> tuple[set[Buffer], set[Buffer]]:
    """The memory that a group reads, and that it writes."""
    reads = {a.buffer.memory for m in group.members for a in m.reads if a.buffer not in group.made}
    return reads, {b.memory for b in stored}


def assign_steps(
    scheduled: Sequence[Group | OperatorCall], stored: Sequence[Iterable[Buffer]], small: Sequence[bool]
) -> list[int]:
    """For each scheduled item the number of the step that it belongs to; `small` says which groups may share one."""
    steps: list[int] = []
    read: set[Buffer] = set()
    written: set[Buffer] = set()
    kernels = 0  # of the last step; 0: nothing may join it
    for item, buffers, is_small in zip(scheduled, stored, small):
        joins = False
        if isinstance(item, Group) and is_small:
            reads, writes = _memory_touched(item, buffers)
            joins = 0 < kernels < MAX_KERNELS and not (reads & written) and not (writes & (read | written))
            if not joins:
                read, written, kernels = set(), set(), 0
            read |= reads
            written |= writes
            kernels += 1
        else:
            kernels = 0
        steps.append((steps[-1] if steps else -1) + (not joins))
    return steps


def verify_concurrent(
    scheduled: Sequence[Group | OperatorCall], stored: Sequence[Iterable[Buffer]], steps: Sequence[int]
) -> bool:
    """Whether no kernel of a step touches what another kernel of the same step writes."""
    for i, one in enumerate(scheduled):
        for j in range(i + 1, len(scheduled)):
            if steps[j] != steps[i]:
                break
            other = scheduled[j]
            if isinstance(one, OperatorCall) or isinstance(other, OperatorCall):
                return False
            reads, writes = _memory_touched(one, stored[i])
            other_reads, other_writes = _memory_touched(other, stored[j])
            if writes & (other_reads | other_writes) or other_writes & reads:
                return False
    return True
