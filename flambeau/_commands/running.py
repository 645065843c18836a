"""Running a program inside a command, with `import torch` meaning flambeau."""

from __future__ import annotations

import os
import runpy
import sys
import traceback


def run_program(script: str, arguments: list[str]) -> int:
    """Runs a file as the main program; the exit status that Python would have had."""
    from flambeau._compat.alias import install

    install()
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except Exception as error:
        _print_error(error, script)
        return 1
    return 0


def _print_error(error: Exception, script: str) -> None:
    """As Python would, less the frames that lead to the program; what cannot even be compiled has no others."""
    told = traceback.TracebackException.from_exception(error)
    start = next((i for i, frame in enumerate(told.stack) if frame.filename == script), None)
    told.stack = None if start is None else traceback.StackSummary.from_list(told.stack[start:])  # type: ignore[assignment]
    print(*told.format(), sep="", end="", file=sys.stderr)
