"""`start_processes`: copies of a program or function, watched as one."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, Std
from flambeau.distributed.elastic.multiprocessing._workers import (
    ERR,
    OUT,
    FunctionWorker,
    ProgramWorker,
    Worker,
    fresh_error_file,
)
from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure

__all__ = [
    "DefaultLogsSpecs", "LogsSpecs", "MultiprocessContext", "PContext", "RunProcsResult", "Std", "SubprocessContext",
    "start_processes", "to_map",
]  # fmt: skip


def to_map(val_or_map: Any, local_world_size: int) -> dict[int, Any]:
    """A value for each local rank."""
    if isinstance(val_or_map, int):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}


@dataclass
class RunProcsResult:
    """What processes returned, which failed, and the files with their output."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        return len(self.failures) > 0


class PContext:
    """Processes that were started together."""

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any] | str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        start_method: str = "spawn",
    ) -> None:
        if set(args) != set(range(len(args))) or set(envs) != set(args):
            raise RuntimeError(
                f"[start_processes] expected args and envs for the local ranks 0 to {len(args) - 1}, got {sorted(args)} and "
                f"{sorted(envs)}"
            )
        self.name, self.entrypoint, self.args, self.envs = name, entrypoint, args, envs
        self._logs, self._start_method = logs_specs, start_method
        self._folder = logs_specs.folder(name) or tempfile.mkdtemp(prefix=f"{name}-")
        self._workers: dict[int, Worker] = {}
        self.stdouts = {local: self._file(local, "stdout") for local in args}
        self.stderrs = {local: self._file(local, "stderr") for local in args}
        self.error_files = {local: fresh_error_file(self._folder, 0, local) for local in args}

    def _file(self, local: int, name: str) -> str:
        to_file, _ = self._logs.stream(local, OUT if name == "stdout" else ERR)
        return os.path.join(self._folder, "attempt_0", str(local), f"{name}.log") if to_file else ""

    def start(self) -> None:
        if self._workers:
            raise ValueError("[start_processes] expected processes that were not started, got running ones")
        for local, arguments in self.args.items():
            environment = {**os.environ, **self.envs[local], "TORCHELASTIC_ERROR_FILE": self.error_files[local]}
            environment["TORCHELASTIC_RESTART_COUNT"] = "0"
            if isinstance(self.entrypoint, str):
                command = [self.entrypoint, *map(str, arguments)]
                self._workers[local] = ProgramWorker(local, local, environment, command, self._logs, self._folder)
            else:
                files = (self.stdouts[local], self.stderrs[local])
                self._workers[local] = FunctionWorker(
                    local, local, environment, self.entrypoint, arguments, self._folder, self._start_method, files
                )

    def pids(self) -> dict[int, int]:
        return {local: worker.pid for local, worker in self._workers.items()}

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """The result when all are through or one failed; None when time is up before. 0 looks once."""
        until = None if timeout < 0 else time.monotonic() + timeout
        while True:
            codes = {local: worker.poll() for local, worker in self._workers.items()}
            failures = {
                local: ProcessFailure(local, self._workers[local].pid, code, self.error_files[local])
                for local, code in codes.items()
                if code not in (None, 0)
            }
            if failures or all(code == 0 for code in codes.values()):
                break
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(min(period, 0.02))
        self.close()
        values = {} if failures else {local: worker.result() for local, worker in self._workers.items()}
        return RunProcsResult(values, failures, self.stdouts, self.stderrs)

    def close(self, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        """Ends what still runs: with a signal, and after a while for good."""
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.signal(death_sig or signal.SIGTERM)
        until = time.monotonic() + timeout
        while any(worker.poll() is None for worker in self._workers.values()) and time.monotonic() < until:
            time.sleep(0.01)
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.signal(signal.SIGKILL)
            worker.close()


class SubprocessContext(PContext):
    """Programs."""


class MultiprocessContext(PContext):
    """Functions."""


def start_processes(
    name: str,
    entrypoint: Callable[..., Any] | str,
    args: dict[int, tuple[Any, ...]],
    envs: dict[int, dict[str, str]],
    logs_specs: LogsSpecs | None = None,
    log_line_prefixes: dict[int, str] | None = None,
    start_method: str = "spawn",
    **_: Any,
) -> PContext:
    """Starts copies of a program or function, one for each entry of `args`."""
    kind = SubprocessContext if isinstance(entrypoint, str) else MultiprocessContext
    context = kind(name, entrypoint, args, envs, logs_specs or DefaultLogsSpecs(), start_method)
    context.start()
    return context
