"""Start a number of processes that run one function, and raise what fails in any of them."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from typing import Any

_MAX_TRACEBACK = 60_000  # fits into a pipe that nobody has read yet


class ProcessException(Exception):
    """One of the processes failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid
        self.error_pid = pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """One of the processes raised an exception; the message holds its traceback."""


class ProcessExitedException(ProcessException):
    """One of the processes ended by a signal or an exit code."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _end_with_parent(parent: int) -> None:
    """Ask the system for an interrupt when the parent ends, so that no process is left alone."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGINT)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGINT)


def _run(fn: Any, index: int, args: tuple[Any, ...], report: Any, parent: int | None) -> None:
    if parent is not None:
        _end_with_parent(parent)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # raised in the parent too
    except Exception:
        import traceback

        report.send_bytes(traceback.format_exc().encode()[-_MAX_TRACEBACK:])
        sys.exit(1)


class ProcessContext:
    """The processes that were started."""

    def __init__(self, processes: list[Any], reports: list[Any]) -> None:
        self.processes = processes
        self._reports = reports
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def _join_procs_with_timeout(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0, end - time.monotonic()))

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for some process to end; True when all have. Raises when one failed, after ending the others."""
        if not self.sentinels:
            return True
        failed = None
        for sentinel in multiprocessing.connection.wait(self.sentinels.keys(), timeout=timeout):
            index = self.sentinels.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode != 0 and failed is None:
                failed = index
        if failed is None:
            return not self.sentinels
        if grace_period is not None:
            self._join_procs_with_timeout(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_procs_with_timeout(30 if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        self._raise(failed)
        return False

    def _raise(self, index: int) -> None:
        process, report = self.processes[index], self._reports[index]
        if report.poll():
            try:
                text = report.recv_bytes().decode(errors="replace")
            except EOFError:
                text = ""
            if text:
                raise ProcessRaisedException(
                    f"\n\n-- Process {index} terminated with the following error:\n{text}", index, process.pid
                )
        code = process.exitcode
        if code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = f"<Unknown signal {-code}>"
            raise ProcessExitedException(
                f"process {index} terminated with signal {name}", index, process.pid, code, name
            )
        raise ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)


class SpawnContext(ProcessContext):
    """The processes of `spawn`."""


def start_processes(
    fn: Any,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` for i in range(nprocs), each in a process."""
    context = multiprocessing.get_context(start_method)
    processes, reports = [], []
    for index in range(nprocs):
        mine, theirs = context.Pipe(duplex=False)
        parent = os.getpid() if start_method != "forkserver" else None  # there the server is the parent
        process = context.Process(target=_run, args=(fn, index, args, theirs, parent), daemon=daemon)
        process.start()
        theirs.close()
        processes.append(process)
        reports.append(mine)
    started = SpawnContext(processes, reports) if start_method == "spawn" else ProcessContext(processes, reports)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Any,
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with fresh interpreters."""
    if start_method != "spawn":
        import warnings

        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}). To use a different start_method use "
            "torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
