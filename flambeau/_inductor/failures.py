"""Failures of compilers: reported once with cause and cure, remembered, and raised where the user asked for that.

What fails to compile runs operator by operator from then on; nothing is tried again on every call. `fullgraph=True` and
FLAMBEAU_STRICT=1 turn the report into a `BackendError`.
"""

from __future__ import annotations

import collections
import errno
import os
import warnings
from typing import Any, NamedTuple

__all__ = ["BackendError", "Failure", "Origin", "report", "remembered"]

_MOST = 64  # failures that are remembered


class BackendError(RuntimeError):
    """A graph could not be compiled; the error of the compiler is its cause."""


class Origin(NamedTuple):
    """Where a graph comes from, and whether failures to compile it are errors."""

    where: str = "a function"
    strict: bool = False


class Failure(NamedTuple):
    where: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"{self.where} could not be compiled: {self.cause}. {self.cure}"


_failures: collections.OrderedDict[tuple[str, str], Failure] = collections.OrderedDict()


def remembered() -> list[Failure]:
    """The last failures of this process."""
    return list(_failures.values())


def forget() -> None:
    _failures.clear()


def report(origin: Origin, error: Exception) -> None:
    """Reports a failure, unless it was, or raises it."""
    cause = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    failure = Failure(origin.where, cause, _cure(error))
    if origin.strict or os.environ.get("FLAMBEAU_STRICT", "") not in ("", "0"):
        raise BackendError(f"[compile] {failure}") from error
    known = _failures.get((origin.where, cause))
    _failures[origin.where, cause] = failure
    while len(_failures) > _MOST:
        _failures.popitem(last=False)
    if known is None:
        warnings.warn(f"[compile] {failure} It runs operator by operator from now on.", RuntimeWarning, stacklevel=2)


def _cure(error: Any) -> str:
    from flambeau._inductor.build import BuildError

    if isinstance(error, BuildError):
        return "Check the C++ compiler, or name another one in CXX."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free disk space, or name another folder in FLAMBEAU_CACHE_DIR."
    if isinstance(error, OSError):
        return "Name a folder that can be written in FLAMBEAU_CACHE_DIR."
    return "FLAMBEAU_STRICT=1 raises the error with its traceback; please report it with the program."
