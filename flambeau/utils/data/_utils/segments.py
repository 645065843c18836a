"""Pieces of shared memory that go back and forth between a worker and its loader.

Fresh memory is dear: the kernel clears and charges every page of it, which takes longer than copying a batch. So the
worker keeps the pieces it made, the loader keeps them mapped, and a piece whose tensors are gone is written again. The
worker writes them as files, because mapping them there would only cost page faults.
"""

from __future__ import annotations

import collections
import os
from typing import Any

from flambeau import _C
from flambeau._C import Tensor

_MOST_SEGMENTS = 64  # beyond, pieces are used once: the loader keeps many batches, and descriptors are limited
_MOST_FREE = 8
_PAGE = 4096

# Tensors that a forked child sees as well must not change under it: what was lent before a fork is not written again.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(before=_count_fork)


class Piece:
    """Part of a message: which segment, how many bytes, and the descriptor if the other end does not have it yet."""

    __slots__ = ("descriptor", "number", "once", "size")

    def __init__(self, number: int, size: int, descriptor: int, once: bool) -> None:
        self.number, self.size, self.descriptor, self.once = number, size, descriptor, once


class Lender:
    """Writes bytes to segments, and again to those that came back."""

    def __init__(self, recycle: bool) -> None:
        self._recycle = recycle
        self._segments: dict[int, tuple[int, int]] = {}  # descriptor and capacity
        self._free: list[int] = []
        self._next = 0
        self._dropped: list[int] = []

    def write(self, data: memoryview) -> Piece:
        size = len(data)
        for number in self._free:
            descriptor, capacity = self._segments[number]
            if size <= capacity <= 2 * size + _PAGE:
                self._free.remove(number)
                self._fill(descriptor, data)
                return Piece(number, size, -1, False)
        descriptor = os.memfd_create("flambeau", os.MFD_CLOEXEC)
        number, self._next = self._next, self._next + 1
        once = not self._recycle or len(self._segments) >= _MOST_SEGMENTS
        piece = Piece(number, size, descriptor, once)
        if not once:
            self._segments[number] = (descriptor, -(-size // _PAGE) * _PAGE)
        try:
            os.ftruncate(descriptor, -(-size // _PAGE) * _PAGE or _PAGE)
            self._fill(descriptor, data)
        except BaseException:
            self._segments.pop(number, None)
            os.close(descriptor)
            raise
        return piece

    @staticmethod
    def _fill(descriptor: int, data: memoryview) -> None:
        at = 0
        while at < len(data):
            at += os.pwrite(descriptor, data[at:], at)

    def cancel(self, pieces: list[Piece]) -> None:
        """Pieces of a message that is not going to be sent."""
        for piece in pieces:
            if piece.once:
                os.close(piece.descriptor)
                piece.once = False
            elif piece.descriptor >= 0:  # unknown to the other end
                os.close(self._segments.pop(piece.number)[0])
            else:
                self._free.append(piece.number)

    def take_back(self, numbers: list[int]) -> None:
        """Segments that are no longer looked at; the oldest are given up when there are many."""
        self._free.extend(number for number in numbers if number in self._segments)
        while len(self._free) > _MOST_FREE:
            self._forget(self._free.pop(0))

    def forget(self, numbers: list[int]) -> None:
        """Segments that must not be written again."""
        for number in numbers:
            if number in self._segments:
                self._forget(number)

    def _forget(self, number: int) -> None:
        os.close(self._segments.pop(number)[0])
        self._dropped.append(number)

    def dropped(self) -> list[int]:
        """Segments that the other end may unmap; told once."""
        out, self._dropped = self._dropped, []
        return out

    def close(self) -> None:
        for descriptor, _ in self._segments.values():
            os.close(descriptor)
        self._segments.clear()
        self._free.clear()


class _Lease:
    """Held by the storage over a segment; says when it is gone."""

    __slots__ = ("_borrower", "_forks", "_number")

    def __init__(self, borrower: Borrower, number: int) -> None:
        self._borrower, self._number, self._forks = borrower, number, _forks

    def __del__(self) -> None:
        place = self._borrower.returned if self._forks == _forks else self._borrower.spoiled
        place.append(self._number)


class Borrower:
    """Maps the segments of the other end, each once."""

    def __init__(self) -> None:
        self._mapped: dict[int, Tensor] = {}
        self.returned: collections.deque[int] = collections.deque()
        self.spoiled: collections.deque[int] = collections.deque()

    def memory(self, piece: Piece) -> Tensor:
        """The bytes of a piece; its descriptor is left to the caller."""
        if piece.once:
            return _C._map_shared(piece.descriptor, piece.size, False)
        if piece.descriptor >= 0:
            capacity = -(-piece.size // _PAGE) * _PAGE or _PAGE
            self._mapped[piece.number] = _C._map_shared(piece.descriptor, capacity, False)
        mapped = self._mapped[piece.number]
        return _C._shared_window(mapped, piece.size, _Lease(self, piece.number))

    def unmap(self, numbers: Any) -> None:
        for number in numbers:
            self._mapped.pop(number, None)

    def news(self) -> tuple[list[int], list[int]]:
        """Segments that may be written again, and segments that must not."""
        return _drain(self.returned), _drain(self.spoiled)


def _drain(queue: collections.deque[int]) -> list[int]:
    out = []
    while queue:
        out.append(queue.popleft())
    return out
