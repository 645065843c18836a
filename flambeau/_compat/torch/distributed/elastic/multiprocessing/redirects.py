"""Standard streams of this process to files, beneath Python: what native code writes goes there, too."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator

__all__ = ["redirect", "redirect_stderr", "redirect_stdout"]


@contextlib.contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """A `with` block in which "stdout" or "stderr" goes to a file."""
    if std not in ("stdout", "stderr"):
        raise ValueError(f"[redirect] unknown standard stream <{std}>, must be one of stdout or stderr")
    stream, number = getattr(sys, std), {"stdout": 1, "stderr": 2}[std]
    stream.flush()
    before = os.dup(number)
    try:
        with open(to_file, "w+b") as file:
            os.dup2(file.fileno(), number)
            yield
            stream.flush()
    finally:
        os.dup2(before, number)
        os.close(before)


redirect_stdout = functools.partial(redirect, "stdout")
redirect_stderr = functools.partial(redirect, "stderr")
