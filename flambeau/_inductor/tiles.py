"""Dividing groups over the programs of a GPU.

In:  a group of loops, the buffers that others need of it, and what the GPU is like.
Out: `Part`s in the order in which they run, each a group that is printed as one kernel, and the tile it works on.

A group stays one kernel where that keeps the GPU busy. It becomes several where its rows are too few or too long: passes run
one after the other, reductions are made in parts and completed by a second kernel. What passes between kernels lies in buffers
that only they know.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import flambeau as fl
from flambeau._inductor.ir import Access, Buffer, Loop, Reduce, chosen_loads
from flambeau._inductor.iteration import assign_passes, iteration_space
from flambeau._inductor.joining import second_loads
from flambeau._inductor.schedule import AFTER_GROUP, Group, Level, Member
from flambeau.ops import expr as e

__all__ = [
    "Part", "Target", "Tile", "TileKind", "alternatives", "divide", "is_small", "multiplies_vectors", "power", "row_reads",
    "subgroup",
]  # fmt: skip


@dataclass(frozen=True)
class Target:
    """What decisions depend on. The defaults are those of a large data-center GPU."""

    capability: int = 90
    processors: int = 132
    longest_row: int = 16384  # that one program keeps in registers
    longest_shared_row: int = 8192  # the same for rows whose columns are reduced too
    failure: int = 0  # the address of the flag that a kernel sets when an index does not exist


class TileKind(enum.Enum):
    """How the work of a group is divided over programs."""

    FLAT = "flat"  # a program computes some elements
    BLOCK = "block"  # the same, as rows by columns
    BY_ROWS = "by rows"  # a program has rows and reduces along their columns
    BY_COLUMNS = "by columns"  # a program has columns and reduces along the rows


@dataclass(frozen=True)
class Tile:
    """The piece that one program, or one step of its loop, works on."""

    kind: TileKind
    x: int  # rows, or elements
    r: int = 1  # columns
    warps: int = 4
    full_rows: bool = True  # a tile has all columns of its rows
    splits: int = 1  # programs that share a fold
    registers: int | None = None  # the most of a thread
    inner: int | None = None  # the row dimension that runs fastest, of a BLOCK


@dataclass
class Part:
    group: Group
    stored: set[Buffer]
    tile: Tile
    scratch: dict[Buffer, Buffer] = field(
        default_factory=dict
    )  # where unfinished reductions go, by the fold's own buffer


def power(n: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(n - 1, 0).bit_length()


def _warps(elements: int) -> int:
    """Warps for a tile with about 32 elements a thread: fewer wait for each other, more do not fit in registers."""
    return min(max(power(elements // (32 * 32)), 1), 32)


def row_reads(group: Group) -> list[Access]:
    """The accesses that load a row: an element for each point, from memory."""
    split = group.split
    assert split is not None
    return [
        a
        for m in group.members
        for i, a in enumerate(m.reads)
        if a.buffer not in group.made
        and any(a.strides[:split])
        and any(a.strides[split:])
        and i not in second_loads(m.loop.expr)
    ]


def _warps_for(group: Group, elements: int) -> int:
    """The same for a group that holds several rows at once, those that it reads and sums of columns: a thread's registers are
    for all of them. With six of 2048 columns, two warps spill 4 KB a thread, eight nothing."""
    rows = len({(a.buffer, a.offset) for a in row_reads(group)}) + sum(
        m.level is Level.COLUMN_REDUCTION for m in group.members
    )
    return min(_warps(elements) * (4 if rows >= 6 else 2 if rows >= 4 else 1), 16)


def _registers(group: Group) -> int | None:
    """64 leave room for one more program on a processor, and are enough where a thread holds its 32 elements of one row."""
    read = {(a.buffer, a.offset) for a in row_reads(group)}
    return 64 if len(read) == 1 and not any(b.dtype.itemsize > 4 for b, _ in read) else None


def divide(group: Group, stored: set[Buffer], target: Target) -> list[Part]:
    """The kernels of a group."""
    space = iteration_space(group)
    sizes, rows = space.sizes, space.rows
    if group.split is None:
        return [Part(group, stored, _pointwise(group, target))]
    height, width = math.prod(sizes[:rows]), math.prod(sizes[rows:])
    if group.halves and width > target.longest_row:
        return [part for sub, needed in _without_halves(group, stored) for part in divide(sub, needed, target)]
    along = [m for m in group.members if m.level is Level.ROW_REDUCTION]
    across = [m for m in group.members if m.level is Level.COLUMN_REDUCTION]
    if not along and not across:
        if all(m.level is Level.POINT for m in group.members):
            points = subgroup(group.dims, None, group.members)
            points.overwrites = group.overwrites
            return divide(points, stored, target)
        return [Part(group, stored, Tile(TileKind.BY_ROWS, 1, min(power(width), 4096), 8, full_rows=width <= 4096))]
    if across:
        if not along and all(m.level is not Level.ROW for m in group.members):
            return _columns(group, stored, target, height, width, full_rows=False)
        if width <= target.longest_shared_row:
            return _columns(group, stored, target, height, width, full_rows=True)
        late = [m for m in group.members if m.level in AFTER_GROUP]
        first = _parts(group, [[m for m in group.members if m.level not in AFTER_GROUP], late], stored)
        return [part for sub, needed in first for part in divide(sub, needed, target)]
    if _lies_across(group):
        return _across_memory(group, stored, target, height, width)
    if width <= target.longest_row:
        x = min(max(2048 // power(width), 1), power(height))
        while x > 1 and height // x < target.processors:
            x //= 2
        warps = _warps_for(group, x * power(width))
        if multiplies_vectors(group):
            # Elements of a thread are many, so that threads are few: kernels that wait for each other find room side by side.
            x, warps = (4, 2) if width <= 1024 and height >= target.processors else (1, min(warps, 16))
            while group.halves and (x < 2 or group.halves % (x // 2)):
                x = 2 if x < 2 else x // 2
        tile = Tile(TileKind.BY_ROWS, x, power(width), warps, registers=_registers(group))
        return [Part(group, stored, tile)]
    if height >= target.processors:
        return [Part(group, stored, Tile(TileKind.BY_ROWS, 1, 4096, 8, full_rows=False))]
    if assign_passes(group)[1] > 1:
        return _pass_by_pass(group, stored, target)
    if height == 1 or width >= 1 << 16 or height < 32:
        splits = max(min(-(-width // 8192), -(-4 * target.processors // height)), 1)
        tile = Tile(TileKind.BY_ROWS, 1, 4096, 8, full_rows=False, splits=splits)
        return _in_parts(group, stored, target, tile, width)
    return [Part(group, stored, Tile(TileKind.BY_ROWS, 1, 4096, 8, full_rows=False))]


def alternatives(tile: Tile) -> list[Tile]:
    """Other tiles for the same work, that may take less time."""
    tiles = [replace(tile, warps=w, registers=None) for w in (tile.warps // 2, tile.warps * 2) if 1 <= w <= 16]
    if tile.kind is TileKind.FLAT:
        tiles += [
            replace(tile, x=x, warps=w) for x, w in ((tile.x // 2, tile.warps), (tile.x * 2, tile.warps)) if x >= 128
        ]
    if tile.kind is TileKind.BY_ROWS and tile.full_rows and tile.splits == 1 and tile.x * tile.r <= 4096:
        tiles.append(replace(tile, x=tile.x * 2, warps=min(tile.warps * 2, 16), registers=None))
    if tile.kind is TileKind.BY_ROWS and not tile.full_rows and tile.splits == 1:
        tiles.append(replace(tile, r=tile.r // 2))
    return tiles


# ---------------------------------------------------------------- pointwise


def _pointwise(group: Group, target: Target) -> Tile:
    """Elements in the order of the result; a tile where something is read in another order."""
    space = iteration_space(group)
    sizes, picks = space.sizes, space.dims
    total = math.prod(sizes)
    if len(sizes) > 1 and sizes[-1] >= 16:
        for member in group.members:
            for access in member.reads:
                if access.strides[picks[-1]] <= 1:
                    continue
                for k in range(len(sizes) - 1):
                    if access.strides[picks[k]] == 1 and sizes[k] >= 16:
                        return Tile(TileKind.BLOCK, 32, 64, 4, full_rows=False, inner=k)
    if len(sizes) == 2 and any(b.memory.padded for b in group.buffers):
        return Tile(TileKind.BLOCK, 1, 2048, 4, full_rows=False)
    if (r := _even_columns(group, sizes)) and total // 2048 >= target.processors:
        return Tile(TileKind.BLOCK, 2048 // r, r, 8, full_rows=False)
    x = 1024
    while x > 128 and total // x < target.processors:
        x //= 2
    return Tile(TileKind.FLAT, x, warps=max(x // 256, 1))


def _even_columns(group: Group, sizes: list[int]) -> int:
    """How many columns divide a row evenly, where it pays to know the row of an element without dividing its number: divisions
    take longer than the memory. Zero where it does not."""
    random = any(a.buffer.source == "random" for m in group.members for a in m.reads)  # these come by the flat tile
    if len(sizes) < 2 or random:
        return 0
    columns = min(sizes[-1] & -sizes[-1], 2048)
    return columns if columns >= 128 and sizes[-1] // columns < 1 << 16 else 0


# ---------------------------------------------------------------- parts of a group


def subgroup(dims: tuple[int, ...], split: int | None, members: Iterable[Member]) -> Group:
    """A group of some members of another."""
    group = Group(dims, split)
    for member in members:
        group.members.append(member)
        group.made[member.loop.write.buffer] = member
        group.buffers |= {a.buffer for a in member.reads} | {member.loop.write.buffer}
    return group


def _parts(group: Group, chosen: list[list[Member]], stored: set[Buffer]) -> list[tuple[Group, set[Buffer]]]:
    """Groups that make the chosen members one after the other, and what each has to store. What a later one needs of an
    earlier one is read from memory if it is there or is known once a row, and otherwise computed again."""
    in_memory: set[Buffer] = set()
    parts: list[tuple[list[Member], set[Buffer]]] = []
    place = {m.loop.write.buffer: at for at, members in enumerate(chosen) for m in members}
    extra: set[Buffer] = set()
    for members in chosen:
        needed: dict[Buffer, Member] = {}
        pending = list(members)
        while pending:
            member = pending.pop()
            buffer = member.loop.write.buffer
            if buffer in needed:
                continue
            needed[buffer] = member
            for access in member.reads:
                source = group.made.get(access.buffer)
                if source is None or access.buffer in in_memory or place[access.buffer] == len(parts):
                    continue
                if source.level is Level.POINT:
                    pending.append(source)
                else:
                    extra.add(access.buffer)
        ordered = [m for m in group.members if m.loop.write.buffer in needed]
        parts.append((ordered, {b for b in needed if place[b] == len(parts)}))
        in_memory |= {m.loop.write.buffer for m in members if m.loop.write.buffer in stored}
    return [
        (subgroup(group.dims, group.split, members), {b for b in own if b in stored or b in extra})
        for members, own in parts
        if own & (stored | extra)
    ]


def _without_halves(group: Group, stored: set[Buffer]) -> list[tuple[Group, set[Buffer]]]:
    """Two groups, the second of those members that read other rows of the first, and of what depends on them."""
    late: set[Buffer] = set()  # what they make
    for member in group.members:
        swapped = {at for loads, _ in chosen_loads(member.loop.expr) for at in loads}
        if any(a.buffer in late or (at in swapped and a.buffer in group.made) for at, a in enumerate(member.reads)):
            late.add(member.loop.write.buffer)
    split = [[m for m in group.members if (m.loop.write.buffer in late) is is_late] for is_late in (False, True)]
    return _parts(group, split, stored)


# ---------------------------------------------------------------- reductions in parts


def _wide(dtype: Any) -> Any:
    """The dtype that a fold's unfinished value is kept in."""
    if dtype is fl.float64 or not dtype.is_floating_point:
        return fl.float64 if dtype is fl.float64 else fl.int64
    return fl.float32


def _unfinished(member: Member, size: tuple[int, ...]) -> Buffer:
    reduce = member.loop.reduce
    assert reduce is not None
    strides = tuple(math.prod(size[i + 1 :]) for i in range(len(size)))
    return Buffer(-1, _wide(reduce.accumulate), size, strides, "loop")


def _rest(member: Member, scratch: Buffer, is_class_dim: tuple[bool, ...], write: Access, count: int) -> Member:
    """The fold of what the parts left."""
    reduce = member.loop.reduce
    assert reduce is not None
    loop = Loop(
        member.loop.name, scratch.size, e.Expr("load", 0), [Access(scratch, 0, scratch.stride)], write, scratch.dtype,
        Reduce(reduce.init, reduce.combine, reduce.finish, reduce.accumulate, is_class_dim), count=count,
    )  # fmt: skip
    return Member(loop, member.level, loop.reads, write)


def _pass_by_pass(group: Group, stored: set[Buffer], target: Target) -> list[Part]:
    """A kernel or more for each pass over the rows."""
    depth, _ = assign_passes(group)
    passes = range(max(depth.values()) + 1)
    by_pass = [[m for m in group.members if depth[m.loop.write.buffer] == at] for at in passes]
    return [part for sub, needed in _parts(group, by_pass, stored) for part in divide(sub, needed, target)]


def _across_memory(group: Group, stored: set[Buffer], target: Target, height: int, width: int) -> list[Part]:
    """Rows that lie beside each other, element by element: a program has many of them, and some of their columns."""
    if assign_passes(group)[1] > 1:
        return _pass_by_pass(group, stored, target)
    x, r = min(64, power(height)), min(64, power(width))
    blocks = -(-height // x)
    splits = max(min(-(-4 * target.processors // blocks), width // (2 * r)), 1)
    tile = Tile(TileKind.BY_ROWS, x, r, _warps(2 * x * r), full_rows=False, splits=splits)
    return [Part(group, stored, tile)] if splits == 1 else _in_parts(group, stored, target, tile, width)


def _lies_across(group: Group) -> bool:
    """Whether neighbours in memory are in different rows, as the channels of channels-last images are, which are summed each
    for itself."""
    split = group.split
    assert split is not None
    full = [a for m in group.members for a in m.reads if any(a.strides[:split]) and any(a.strides[split:])]
    full = [a for a in full if a.buffer not in group.made]
    across = [a for a in full if min(filter(None, a.strides[:split])) < min(filter(None, a.strides[split:]))]
    return 2 * len(across) > len(full) and math.prod(group.dims[:split]) >= 16


def multiplies_vectors(group: Group) -> bool:
    """Whether the rows are those of matrices, each multiplied by a vector."""
    reductions = [m for m in group.members if m.level is Level.ROW_REDUCTION]
    return any(m.loop.name == "product" for m in reductions)


def is_small(group: Group, target: Target) -> bool:
    """Whether the kernel of a group leaves most of a GPU idle, or is a product with a vector, which other rows can join."""
    count = math.prod(iteration_space(group).sizes)
    if group.split is None:
        return count <= 64 * target.processors
    return multiplies_vectors(group) and count <= 1 << 22


def _in_parts(group: Group, stored: set[Buffer], target: Target, tile: Tile, width: int) -> list[Part]:
    """Every row is divided over several programs."""
    assert group.split is not None
    splits = tile.splits
    row_dims = group.dims[: group.split]
    reductions = [m for m in group.members if m.level is Level.ROW_REDUCTION]
    scratch = {m.loop.write.buffer: _unfinished(m, (*row_dims, splits)) for m in reductions}
    last: list[Member] = []
    pad = (0,) * 1
    for member in group.members:
        row = member.write.strides[: group.split] + pad
        write = Access(member.write.buffer, member.write.offset, row)
        if member.level is Level.ROW_REDUCTION:
            kept_dims = (True,) * len(row_dims) + (False,)
            last.append(_rest(member, scratch[member.loop.write.buffer], kept_dims, write, width))
        elif member.level is Level.ROW:
            reads = [Access(a.buffer, a.offset, a.strides[: group.split] + pad) for a in member.reads]
            last.append(Member(member.loop, Level.ROW, reads, write))
    first = subgroup(group.dims, group.split, [m for m in group.members if m.level is not Level.ROW])
    finish = subgroup((*row_dims, splits), group.split, last)
    return [
        Part(first, {b for b in stored if b in first.made}, tile, scratch),
        *divide(finish, {b for b in stored if b in finish.made}, target),
    ]


def _columns(group: Group, stored: set[Buffer], target: Target, height: int, width: int, full_rows: bool) -> list[Part]:
    """Reductions along the rows. With reductions along columns beside them, a program has whole rows."""
    assert group.split is not None
    if full_rows:
        r = power(width)
        x = max(2048 // r, 1)
        waves = 4
    else:
        r = min(power(width), 128)
        x, waves = (8192 // r, 2) if width <= r else (4096 // r, 4)
    x = min(x, power(height))
    warps = _warps_for(group, x * r) if full_rows else _warps(x * r)
    tile = Tile(TileKind.BY_COLUMNS, x, r, warps, full_rows=full_rows or width <= r)
    blocks = 1 if full_rows else -(-width // r)
    splits = max(min(-(-waves * target.processors // blocks), height // (x * 4)), 1)
    if splits == 1:
        return [Part(group, stored, tile)]
    column_dims = group.dims[group.split :]
    reductions = [m for m in group.members if m.level is Level.COLUMN_REDUCTION]
    scratch = {m.loop.write.buffer: _unfinished(m, (splits, *column_dims)) for m in reductions}
    kept_dims = (False,) + (True,) * len(column_dims)
    at = group.split

    def below(access: Access) -> Access:
        return Access(access.buffer, access.offset, (0, *access.strides[at:]))

    last = [_rest(m, scratch[m.loop.write.buffer], kept_dims, below(m.write), height) for m in reductions]
    after = [m for m in group.members if m.level is Level.COLUMN]
    last += [Member(m.loop, m.level, list(map(below, m.reads)), below(m.write)) for m in after]
    overwrites = group.overwrites
    group = subgroup(group.dims, group.split, [m for m in group.members if m.level is not Level.COLUMN])
    group.overwrites = overwrites
    finish = subgroup((splits, *column_dims), 1, last)
    own = {b for b in stored if b in group.made and b not in scratch}
    few = min(power(splits), 256)
    across = min(power(width), max(2048 // few, 8))
    ends = Tile(TileKind.BY_COLUMNS, few, across, 4, full_rows=width <= across)
    return [
        Part(group, own, replace(tile, splits=splits), scratch),
        Part(finish, {b for b in stored if b in finish.made}, ends),
    ]
