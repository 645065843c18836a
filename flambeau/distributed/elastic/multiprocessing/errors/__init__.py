"""How a failing worker tells its agent what happened, and how the agent tells the user."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]


class ErrorHandler:
    """Writes exceptions of this process to the file that its agent named."""

    def initialize(self) -> None:
        import faulthandler

        with contextlib.suppress(Exception):
            faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path:
            return
        text = "".join(traceback.format_exception(type(e), e, e.__traceback__))
        report = {
            "message": {
                "message": f"{type(e).__name__}: {e}",
                "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))},
                "follows": _follows_another(e),
            }
        }
        with open(path, "w") as file:
            json.dump(report, file)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Passes the report of a worker on to this process's own agent; to standard error when it has none."""
        with open(rootcause_error_file) as file:
            text = file.read()
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if path:
            with open(path, "w") as file:
                file.write(text)
        else:
            print(f"[launch] {rootcause_error_file}: {text}", file=sys.stderr)


def _follows_another(error: BaseException) -> bool:
    """Whether an error says that another process failed."""
    from flambeau import _distributed as native

    return isinstance(error, native.DistBackendError)


def report_uncaught() -> None:
    """An exception that ends this process is written down for the agent, as `record` does."""
    if not os.environ.get("TORCHELASTIC_ERROR_FILE") or getattr(sys.excepthook, "_reports", False):
        return
    previous = sys.excepthook

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        if not os.path.exists(os.environ.get("TORCHELASTIC_ERROR_FILE", "")) and isinstance(error, Exception):
            with contextlib.suppress(OSError):
                get_error_handler().record_exception(error)
        previous(kind, error, trace)

    hook._reports = True
    sys.excepthook = hook


def get_error_handler() -> ErrorHandler:
    return ErrorHandler()


class ProcessFailure:
    """A worker that ended with an exit code other than 0."""

    def __init__(self, local_rank: int, pid: int, exitcode: int | None, error_file: str) -> None:
        self.local_rank, self.pid, self.exitcode, self.error_file = local_rank, pid, exitcode, error_file
        self.timestamp = int(time.time())
        self.error_file_data: dict[str, Any] = {}
        self.follows = False  # another worker's failure
        self.message: Any = ""
        if error_file and os.path.isfile(error_file):
            try:
                with open(error_file) as file:
                    self.error_file_data = json.load(file)
                self.message = self.error_file_data["message"]
                self.timestamp = int(self.message["extraInfo"]["timestamp"])
                self.follows = bool(self.message.get("follows"))
            except (OSError, ValueError, KeyError, TypeError):
                pass
        if not self.message:
            name = self.signal_name()
            self.message = (
                f"Signal {-(exitcode or 0)} ({name}) received by PID {pid}"
                if name != "<N/A>"
                else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
            )

    def signal_name(self) -> str:
        if self.exitcode is not None and self.exitcode < 0:
            try:
                return signal.Signals(-self.exitcode).name
            except ValueError:
                pass
        return "<N/A>"

    def timestamp_isoformat(self) -> str:
        return datetime.datetime.fromtimestamp(self.timestamp).isoformat(sep="_")


class ChildFailedError(Exception):
    """Workers failed, and there are no restarts left. `failures` holds them by rank."""

    def __init__(self, name: str, failures: dict[int, ProcessFailure]) -> None:
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        rank = min(self.failures, key=lambda r: (self.failures[r].follows, self.failures[r].timestamp))
        return rank, self.failures[rank]

    def format_msg(self) -> str:
        lines = ["", "=" * 60, f"{self.name} FAILED", "-" * 60, "Failures:"]
        if not self.failures:
            return "\n".join([*lines, "  workers of another node failed", "=" * 60])
        first = self.get_first_failure()[0]
        others = [self._describe(rank) for rank in self.failures if rank != first]
        lines += others or ["  <NO_OTHER_FAILURES>"]
        return "\n".join([*lines, "-" * 60, "Root Cause (first observed failure):", self._describe(first), "=" * 60])

    def _describe(self, rank: int) -> str:
        failure = self.failures[rank]
        message = failure.message
        text = message.get("extraInfo", {}).get("py_callstack", str(message)) if isinstance(message, dict) else message
        return "\n".join([
            "[0]:",
            f"  time      : {failure.timestamp_isoformat()}",
            f"  host      : {socket.gethostname()}",
            f"  rank      : {rank} (local_rank: {failure.local_rank})",
            f"  exitcode  : {failure.exitcode} (pid: {failure.pid})",
            f"  error_file: {failure.error_file or '<N/A>'}",
            f"  traceback : {text}",
        ])  # fmt: skip


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """A decorator of a worker's main function: its exception is written down for the agent before it is raised."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code in (None, 0):
                return None
            raise
        except ChildFailedError as error:
            _, failure = error.get_first_failure()
            print(error.format_msg(), file=sys.stderr)
            if failure.error_file_data:
                handler.record_exception(error)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return wrapped
