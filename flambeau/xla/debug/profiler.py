"""The functions of torch_xla.debug.profiler: names in flambeau's own profiles, and traces taken by a server in the process.

A trace is a file of Chrome's format, `<logdir>/plugins/profile/<time>/<host>.trace.json`, where TensorBoard looks for it.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from flambeau.profiler import profile, record_function

__all__ = ["StepTrace", "Trace", "start_server", "start_trace", "stop_trace", "trace", "trace_detached", "trace_me"]

_open: tuple[Any, str] | None = None  # the profile that `start_trace` began, and its folder


class Trace(record_function):
    """A named part of the program."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__(name)


class StepTrace(Trace):
    """A step of the program, which runs when it ends."""

    def __exit__(self, *exception: Any) -> None:
        from flambeau import xla

        if exception[0] is None:
            xla.sync()
        super().__exit__(*exception)


def trace_me(scope: str) -> Any:
    """A decorator: calls of the function are a part of this name."""

    def decorate(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            with Trace(scope):
                return function(*args, **kwargs)

        return call

    return decorate


def _as_text(finished: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        finished.export_chrome_trace(str(path))
        return path.read_text()


def _write(text: str, logdir: str) -> None:
    folder = Path(logdir) / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{socket.gethostname()}.trace.json").write_text(text)


def start_trace(log_dir: str) -> None:
    """Everything from here to `stop_trace` goes to a trace."""
    global _open
    if _open is not None:
        raise RuntimeError("[start_trace] expected stop_trace first, got a trace that has begun")
    running = profile()
    running.__enter__()
    _open = running, os.fspath(log_dir)


def stop_trace() -> None:
    global _open
    if _open is None:
        raise RuntimeError("[stop_trace] expected start_trace before, got no trace")
    (running, logdir), _open = _open, None
    running.__exit__(None, None, None)
    _write(_as_text(running), logdir)


class _Request(socketserver.StreamRequestHandler):
    """A number of milliseconds in; a trace of this process for so long out."""

    def handle(self) -> None:
        duration = int(self.rfile.readline())
        with profile() as taken:
            time.sleep(duration / 1e3)
        self.wfile.write(_as_text(taken).encode())


class ProfilerServer(socketserver.ThreadingTCPServer):
    """Takes traces of this process for whoever asks at a port of this host."""

    daemon_threads = allow_reuse_address = True


def start_server(port: int, only_on_master: bool = True) -> ProfilerServer:
    """Begins to serve traces at a port; the server lives as long as its object, or the process."""
    server = ProfilerServer(("localhost", port), _Request)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def trace(
    service_addr: str, logdir: str, duration_ms: int = 1000, num_tracing_attempts: int = 3, **options: Any
) -> None:
    """Asks the server at host:port for a trace, and writes it."""
    host, _, port = service_addr.rpartition(":")
    for attempt in range(num_tracing_attempts):
        try:
            connection = socket.create_connection((host or "localhost", int(port)))
            break
        except OSError:
            if attempt + 1 == num_tracing_attempts:
                raise
            time.sleep(0.2)
    with connection, connection.makefile("rwb") as stream:
        stream.write(f"{duration_ms}\n".encode())
        stream.flush()
        text = stream.read().decode()
    json.loads(text)  # whole
    _write(text, logdir)


def trace_detached(*args: Any, **kwargs: Any) -> None:
    """The same, while the program goes on."""
    threading.Thread(target=trace, args=args, kwargs=kwargs).start()
