"""How a group is walked: its dimensions as they lie in memory, and the passes over its rows. Every printer needs both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flambeau._inductor.ir import Buffer
from flambeau._inductor.schedule import Group, Level

__all__ = ["IterationSpace", "assign_passes", "iteration_space"]


@dataclass
class IterationSpace:
    """The dimensions that a kernel of a group walks, rows before columns."""

    sizes: list[int]
    dims: list[int]  # for each size the dimension of the group whose strides it has
    rows: int  # how many of the dimensions are rows


def iteration_space(group: Group) -> IterationSpace:
    """Orders the dimensions of a group as they lie in memory, merges neighbours, and divides them into rows and columns."""
    dims, split = list(group.dims), group.split
    accesses = [a for m in group.members for a in (m.write, *m.reads)]
    order = list(range(len(dims)))
    if split is None:
        lead = group.members[-1].write.strides
        order.sort(key=lambda i: -lead[i])
    runs: list[list[int]] = []  # dimensions that are walked as one
    for place, i in enumerate(order):
        if runs and (split is None or i != split):
            j = order[place - 1]
            if all(a.strides[j] == a.strides[i] * dims[i] for a in accesses):
                runs[-1].append(i)
                continue
        runs.append([i])
    sizes = [math.prod(dims[i] for i in run) for run in runs]
    last_dims = [run[-1] for run in runs]  # the stride of a run is that of its last dimension
    rows = max(len(sizes) - 1, 0) if split is None else sum(1 for run in runs if run[0] < split)
    return IterationSpace(sizes, last_dims, rows)


def assign_passes(group: Group) -> tuple[dict[Buffer, int], int]:
    """The pass that computes each buffer of a group, and the number of passes. The result of a row reduction is known in
    the pass after it."""
    pass_of: dict[Buffer, int] = {}
    for member in group.members:
        own_pass = 0
        for access in member.reads:
            source = group.made.get(access.buffer)
            if source is not None:
                known_in = pass_of[access.buffer]
                is_later = source.level in (Level.ROW_REDUCTION, Level.ROW) and member.level is not Level.ROW
                own_pass = max(own_pass, known_in + 1 if is_later else known_in)
        pass_of[member.loop.write.buffer] = own_pass
    walked = [pass_of[m.loop.write.buffer] for m in group.members if m.level not in (Level.ROW, Level.COLUMN)]
    return pass_of, 1 + max(walked, default=-1)
