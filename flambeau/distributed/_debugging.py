"""A debugger on one rank while the others wait."""

from __future__ import annotations

import pdb
import sys
import types
from typing import Any

from flambeau.distributed import _collectives, _groups

__all__ = ["breakpoint"]


class _TerminalDebugger(pdb.Pdb):
    """Reads commands from the terminal, because launched processes have no standard input of their own."""

    def interaction(self, frame: types.FrameType | None, *rest: Any) -> None:
        original = sys.stdin
        try:
            with open("/dev/stdin") as sys.stdin:
                super().interaction(frame, *rest)
        finally:
            sys.stdin = original


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: int = 3600) -> None:
    """Stops `rank` in a debugger at the caller's line; the other ranks wait at a barrier."""
    del timeout_s  # the debugged rank is alive, which is what others wait for
    if _skipped.get(rank, 0) < skip:
        _skipped[rank] = _skipped.get(rank, 0) + 1
        return
    if _groups.get_rank() == rank:
        debugger = _TerminalDebugger()
        debugger.message("\n[breakpoint] 'up' leads to the caller; the other ranks wait\n")
        debugger.set_trace(sys._getframe().f_back)
    _collectives.barrier()


_skipped: dict[int, int] = {}
