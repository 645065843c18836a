"""Workers started together, and the errors of those that fail."""

from __future__ import annotations

import enum
from typing import Any

from flambeau.distributed.elastic.multiprocessing import errors
from flambeau.distributed.elastic.multiprocessing._workers import Logs

__all__ = [
    "DefaultLogsSpecs", "LogsSpecs", "MultiprocessContext", "PContext", "RunProcsResult", "SignalException", "Std",
    "SubprocessContext", "errors", "start_processes", "to_map",
]  # fmt: skip

_API = ("MultiprocessContext", "PContext", "RunProcsResult", "SubprocessContext", "start_processes", "to_map")


class Std(enum.IntFlag):
    """Streams of a worker."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3

    @classmethod
    def from_str(cls, vm: str) -> Any:
        from flambeau.distributed.elastic.multiprocessing._workers import parse_streams

        parsed = parse_streams(vm)
        return cls(parsed) if isinstance(parsed, int) else {rank: cls(value) for rank, value in parsed.items()}


class LogsSpecs(Logs):
    """Where the output of workers goes, by PyTorch's names."""

    def __init__(
        self,
        log_dir: str | None = None,
        redirects: Any = Std.NONE,
        tee: Any = Std.NONE,
        local_ranks_filter: set[int] | None = None,
    ) -> None:
        plain = [int(v) if isinstance(v, int) else {r: int(s) for r, s in v.items()} for v in (redirects, tee)]
        super().__init__(log_dir, plain[0], plain[1], local_ranks_filter)


DefaultLogsSpecs = LogsSpecs


def __getattr__(name: str) -> Any:
    if name == "SignalException":
        from flambeau.distributed.elastic._agent import SignalException

        return SignalException
    if name in _API:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
