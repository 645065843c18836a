"""What every printer needs to know of a group: its dimensions as they lie in memory, and the passes over its rows."""

from __future__ import annotations

from collections.abc import Iterable

from flambeau._inductor.ir import Buffer
from flambeau._inductor.schedule import Group

__all__ = ["arrange", "passes", "product"]


def product(numbers: Iterable[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total


def arrange(group: Group) -> tuple[list[int], list[int], int]:
    """Orders dimensions as they lie in memory, merges neighbours, and divides them into rows and columns.

    Returns the sizes, for each the group's dimension whose stride it has, and how many of them are rows.
    """
    dims, split = list(group.dims), group.split
    flat = [a for m in group.members for a in (m.write, *m.reads)]
    order = list(range(len(dims)))
    if split is None:
        lead = group.members[-1].write.strides
        order.sort(key=lambda i: -lead[i])
    merged: list[list[int]] = []  # runs of dimensions that are walked as one
    for place, i in enumerate(order):
        if merged and (split is None or i != split):
            j = order[place - 1]
            if all(a.strides[j] == a.strides[i] * dims[i] for a in flat):
                merged[-1].append(i)
                continue
        merged.append([i])
    sizes = [product(dims[i] for i in run) for run in merged]
    picks = [run[-1] for run in merged]  # the stride of a run is that of its last dimension
    rows = max(len(sizes) - 1, 0) if split is None else sum(1 for run in merged if run[0] < split)
    return sizes, picks, rows


def passes(group: Group) -> tuple[dict[Buffer, int], int]:
    """The pass of each member, and how many there are: folds of a pass are known in the next one."""
    depth: dict[Buffer, int] = {}
    for member in group.members:
        mine = 0
        for access in member.reads:
            source = group.made.get(access.buffer)
            if source is not None:
                known = depth[access.buffer]
                later = source.level in ("fold", "row") and member.level != "row"
                mine = max(mine, known + 1 if later else known)
        depth[member.loop.write.buffer] = mine
    last = max((depth[m.loop.write.buffer] for m in group.members if m.level not in ("row", "column")), default=-1)
    return depth, 1 + last
