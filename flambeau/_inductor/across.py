"""Reductions across memory: over dimensions that lie between others, as each channel of channels-last images is summed.

Loops take the order of memory (`ir.in_memory_order`), in which such a reduction has dimensions that it keeps on both sides, so
it takes the order of its dimensions instead. The pointwise loops that make what it reduces have to do the same to run in its
kernel. Where others need their results too, those compute them for themselves: the copy costs some arithmetic and no memory.
"""

from __future__ import annotations

from dataclasses import replace

from flambeau._inductor.ir import Access, Buffer, Loop, OperatorCall, in_memory_order

__all__ = ["ordered", "with_own_operands"]

_MOST_LOOPS = 16  # that are computed again for one reduction
_MOST_READS = 3  # tensors as large as the reduced one that they read instead of it

Items = list[Loop | OperatorCall]


def _is_across(loop: Loop) -> bool:
    """Whether a reduction cannot take the order of memory."""
    if loop.reduce is None or in_memory_order(loop) is not loop:
        return False
    lead = max(loop.reads, key=lambda a: sum(map(bool, a.strides)), default=None)
    if lead is None:
        return False
    strides = [s for s, n in zip(lead.strides, loop.domain) if n != 1]
    return strides != sorted(strides, reverse=True)


def with_own_operands(items: Items, first_index: int) -> Items:
    """The items with copies of the pointwise loops that such reductions read. Buffers of copies are numbered from
    `first_index` on. Reductions of the same operands and their copies are a kind of their own for the scheduler."""
    if not any(isinstance(item, Loop) and _is_across(item) for item in items):
        return items
    program = _Program(items)
    copies: dict[Buffer, Loop] = {}
    kinds: dict[tuple[tuple[int, ...], Buffer], int] = {}
    result: Items = []
    for at, item in enumerate(items):
        if isinstance(item, Loop) and _is_across(item):
            chain, leaves = program.chain(item, at)
            kind = next((kinds[item.domain, leaf] for leaf in leaves if (item.domain, leaf) in kinds), len(kinds) + 1)
            kinds.update(((item.domain, leaf), kind) for leaf in leaves)
            for source in chain:
                buffer = source.write.buffer
                if buffer not in copies:
                    own = Buffer(first_index + len(copies), buffer.dtype, buffer.size, buffer.stride, "loop")
                    write = replace(source.write, buffer=own)
                    copies[buffer] = replace(source, reads=_own(source.reads, copies), write=write, apart=kind)
                    result.append(copies[buffer])
            item = replace(item, reads=_own(item.reads, copies) if chain else item.reads, apart=kind)
        result.append(item)
    return result


def _own(reads: list[Access], copies: dict[Buffer, Loop]) -> list[Access]:
    return [replace(a, buffer=copies[a.buffer].write.buffer) if a.buffer in copies else a for a in reads]


class _Program:
    """What is asked about the items of a program."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.made_at: dict[Buffer, int] = {}
        self.in_place_before = [0]
        self.stored: set[Buffer] = (
            set()
        )  # what is in memory whatever reductions do: somebody reads it otherwise than it is made
        for at, item in enumerate(items):
            if isinstance(item, OperatorCall):
                self.in_place_before.append(self.in_place_before[-1] + bool(item.written))
                self.stored |= {buffer for buffer, _ in item.reads}
                continue
            in_place = item.write.buffer.memory is not item.write.buffer
            self.in_place_before.append(self.in_place_before[-1] + in_place)
            for access in item.reads:
                place = self.made_at.get(access.buffer)
                if place is not None and self.items[place].write != access:  # type: ignore[union-attr]
                    self.stored.add(access.buffer)
            if item.reduce is None and not in_place:
                self.made_at[item.write.buffer] = at

    def chain(self, loop: Loop, at: int) -> tuple[list[Loop], set[Buffer]]:
        """The pointwise loops over the same domain that make what a reduction reads, in order, and the tensors as large as
        the reduced one that they read. No loops where they are too many or read too much, or where something that they read
        is written meanwhile."""
        places: set[int] = set()
        leaves: set[Buffer] = set()
        own = {a.buffer for a in loop.reads if _is_full(a, loop)}
        pending = list(loop.reads)
        while pending:
            access = pending.pop()
            place = self.made_at.get(access.buffer)
            source = None if place is None or access.buffer in self.stored else self.items[place]
            if isinstance(source, Loop) and source.domain == loop.domain and source.write == access:
                if place not in places:
                    places.add(place)  # type: ignore[arg-type]
                    pending += source.reads
            elif access.buffer.source in ("random", "index"):
                return [], own
            elif _is_full(access, loop):
                leaves.add(access.buffer)
        first = min(places, default=at)
        too_much = len(places) > _MOST_LOOPS or len(leaves) > _MOST_READS
        if too_much or self.in_place_before[at] != self.in_place_before[first]:
            return [], own
        return [self.items[place] for place in sorted(places)], leaves  # type: ignore[misc]


def _is_full(access: Access, loop: Loop) -> bool:
    return all(s for s, n in zip(access.strides, loop.domain) if n != 1)


def ordered(items: Items) -> Items:
    """The items with loops in the order of memory, but for those reductions and what is computed for them alone."""
    in_order: set[Buffer] = set()  # what loops make that keep the order of their dimensions
    readers: dict[Buffer, list[Loop | OperatorCall]] = {}
    result: Items = []
    for item in reversed(items):
        if isinstance(item, OperatorCall):
            for buffer, _ in item.reads:
                readers.setdefault(buffer, []).append(item)
            result.append(item)
            continue
        target = item.write.buffer
        using = readers.get(target, [])
        keeps = (
            bool(item.apart)
            or _is_across(item)
            or (
                item.reduce is None
                and bool(using)
                and all(
                    isinstance(r, Loop)
                    and r.write.buffer in in_order
                    and (r.domain == item.domain or r.reduce is not None)
                    for r in using
                )
            )
        )
        if keeps:
            in_order.add(target)
        for access in item.reads:
            readers.setdefault(access.buffer, []).append(item)
        result.append(item if keeps else in_memory_order(item))
    result.reverse()
    return result
