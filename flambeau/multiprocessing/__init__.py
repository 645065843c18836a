"""Python's multiprocessing, with tensors that are shared instead of copied.

Everything of the standard module is here under its own name. Importing this module teaches it to send tensors by
descriptor: see `reductions`.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403

from flambeau.multiprocessing import reductions
from flambeau.multiprocessing.reductions import init_reductions
from flambeau.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = ["set_sharing_strategy", "get_sharing_strategy", "get_all_sharing_strategies"]
__all__ += multiprocessing.__all__
__all__ += [
    "ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "init_reductions", "spawn",
    "start_processes",
]  # fmt: skip

_strategy = "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """How received tensors hold their memory: with a descriptor, so that they can be sent on as they are, or without
    one ("file_system"), so that many of them do not exhaust the limit of open files. Neither leaves files behind."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(
            f"[set_sharing_strategy] expected one of {sorted(get_all_sharing_strategies())}, got {new_strategy!r}"
        )
    _strategy = new_strategy
    reductions.keep_descriptors(new_strategy == "file_descriptor")


init_reductions()
