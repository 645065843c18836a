"""Workers of an agent: programs started as processes, and functions run in processes."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["FunctionWorker", "Logs", "ProgramWorker", "Worker", "fresh_error_file"]

OUT, ERR = 1, 2


def parse_streams(text: str | int) -> dict[int, int] | int:
    """`--redirects` and `--tee`: "3" for all workers, "0:1,1:2" by local rank (1: standard output, 2: standard error)."""
    if isinstance(text, int) or text.isdigit():
        return int(text)
    return {int(pair.partition(":")[0]): int(pair.partition(":")[2]) for pair in text.split(",")}


@dataclass
class Logs:
    """Where the output of workers goes."""

    directory: str | None = None
    redirects: dict[int, int] | int = 0
    tee: dict[int, int] | int = 0
    shown: set[int] | None = None  # local ranks whose output is shown

    def folder(self, run_id: str) -> str | None:
        if self.directory is None:
            return None
        os.makedirs(self.directory, exist_ok=True)
        return tempfile.mkdtemp(prefix=f"{run_id or 'run'}_", dir=self.directory)

    @staticmethod
    def _of(choice: dict[int, int] | int, local: int) -> int:
        return choice if isinstance(choice, int) else choice.get(local, 0)

    def stream(self, local: int, which: int) -> tuple[bool, bool]:
        """Whether a stream is written to a file, and whether it is shown."""
        redirected = bool(self._of(self.redirects, local) & which)
        teed = bool(self._of(self.tee, local) & which)
        visible = self.shown is None or local in self.shown
        return redirected or teed, visible and (teed or not redirected)


def fresh_error_file(folder: str, attempt: int, local: int) -> str:
    """Where a worker leaves its error, beside its output; what an earlier worker left there is gone."""
    place = os.path.join(folder, f"attempt_{attempt}", str(local))
    os.makedirs(place, exist_ok=True)
    path = os.path.join(place, "error.json")
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    return path


class Worker:
    """A process of one rank."""

    def __init__(self, rank: int, local: int, environment: dict[str, str]) -> None:
        self.rank, self.local, self.environment = rank, local, environment
        self.error_file = environment.get("TORCHELASTIC_ERROR_FILE", "")
        self.pid = -1

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        raise NotImplementedError

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def result(self) -> Any:
        return None

    def close(self) -> None: ...


class ProgramWorker(Worker):
    """A program; its output is passed on with the rank in front when it is also written to a file."""

    def __init__(
        self, rank: int, local: int, environment: dict[str, str], command: list[str], logs: Logs, folder: str
    ) -> None:
        super().__init__(rank, local, environment)
        self._threads: list[threading.Thread] = []
        attempt = os.path.join(folder, f"attempt_{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}", str(local))
        targets: list[Any] = []
        pumps = []
        for which, name, console in ((OUT, "stdout", sys.stdout), (ERR, "stderr", sys.stderr)):
            to_file, shown = logs.stream(local, which)
            if not to_file:
                targets.append(None if shown else subprocess.DEVNULL)
                continue
            os.makedirs(attempt, exist_ok=True)
            file = open(os.path.join(attempt, f"{name}.log"), "wb", buffering=0)  # noqa: SIM115
            if shown:
                targets.append(subprocess.PIPE)
                pumps.append((name, file, console))
            else:
                targets.append(file)
        self._process = subprocess.Popen(command, env=environment, stdout=targets[0], stderr=targets[1])
        self.pid = self._process.pid
        for name, file, console in pumps:
            arguments = (getattr(self._process, name), file, console)
            self._threads.append(threading.Thread(target=self._pump, args=arguments, daemon=True))
            self._threads[-1].start()

    def _pump(self, source: BinaryIO, file: BinaryIO, console: Any) -> None:
        role = self.environment.get("ROLE_NAME", "default")
        for line in source:
            file.write(line)
            console.write(f"[{role}{self.rank}]:{line.decode(errors='replace')}")
            console.flush()

    def poll(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        self._process.wait()
        for thread in self._threads:
            thread.join(1)


def _run_function(
    function: Any, arguments: Any, environment: dict[str, str], result_file: str, files: tuple[str, str]
) -> None:
    """Runs in the worker: leaves the result, or the error, in a file; `files` are for its output, where they are named."""
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(files, start=1):
        if path:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), descriptor)
            setattr(sys, ("stdout", "stderr")[descriptor - 1], os.fdopen(descriptor, "w", buffering=1, closefd=False))
    try:
        value = function(*arguments)
    except SystemExit:
        raise
    except BaseException as error:
        report = {
            "message": {
                "message": f"{type(error).__name__}: {error}",
                "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))},
            }
        }
        if not os.path.exists(environment["TORCHELASTIC_ERROR_FILE"]):
            with open(environment["TORCHELASTIC_ERROR_FILE"], "w") as file:
                json.dump(report, file)
        traceback.print_exc()
        sys.exit(1)
    with open(result_file, "wb") as file:
        pickle.dump(value, file)


class FunctionWorker(Worker):
    """A function of the launching program."""

    def __init__(
        self,
        rank: int,
        local: int,
        environment: dict[str, str],
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        folder: str,
        start_method: str,
        files: tuple[str, str] = ("", ""),
    ) -> None:
        super().__init__(rank, local, environment)
        self._result_file = os.path.join(folder, f"{environment.get('FLAMBEAU_ROUND', '0')}-{rank}-result.pkl")
        context: Any = multiprocessing.get_context(start_method)
        self._process = context.Process(
            target=_run_function, args=(function, arguments, environment, self._result_file, files), daemon=False
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def result(self) -> Any:
        if not os.path.exists(self._result_file):
            return None
        with open(self._result_file, "rb") as file:
            return pickle.load(file)

    def close(self) -> None:
        self._process.join()
