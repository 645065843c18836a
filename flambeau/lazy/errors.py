"""Errors of recorded programs, with the line of the user's program that they come from."""

from __future__ import annotations

import linecache

__all__ = ["place", "with_line"]


def place(line: tuple[str, int] | None) -> str:
    """file:line: text."""
    if line is None:
        return "an unknown line"
    text = linecache.getline(*line).strip()
    return f"{line[0]}:{line[1]}" + (f": {text}" if text else "")


def with_line(error: BaseException, line: tuple[str, int] | None, exact: bool) -> tuple[BaseException, BaseException]:
    """The error to raise now, and the one for whoever asks later for a value that the program would have computed.

    `exact` says that the line recorded the call that failed; otherwise the program only begins there.
    """
    where = f"recorded at {place(line)}" if exact else f"in the program that begins at {place(line)}"
    if not isinstance(error, Exception):  # an interruption happens once; its values are missing from then on
        return error, RuntimeError(f"[lazy] expected a program that ran, got one that was interrupted\n{where}")
    message = f"{error.args[0] if len(error.args) == 1 else error}\n{where}"
    try:
        again: Exception = type(error)(message)
    except Exception:  # a class with arguments of its own
        again = RuntimeError(f"{type(error).__name__}: {message}")
    again.__cause__ = error
    return again, again
