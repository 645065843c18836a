"""Which frames of the stack are the user's, and how a message names a line of theirs."""

from __future__ import annotations

import linecache
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(_HERE)) + os.sep
_MODELS = _PACKAGE + "vision" + os.sep  # programs like the user's


def is_own_frame(filename: str) -> bool:
    """Whether a file is part of the tracer, or code it printed."""
    return filename.startswith((_HERE, "<eval_with_key>"))


def user_location() -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame outside the package; failing that, outside the tracer."""
    frame = sys._getframe(1)
    fallback: tuple[str, int, str] | None = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_own_frame(name):
            here = (name, frame.f_lineno, frame.f_code.co_name)
            if not name.startswith(_PACKAGE) or name.startswith(_MODELS):
                return here
            fallback = fallback or here
        if frame.f_back is None:
            break
        frame = frame.f_back
    return fallback


def describe_user_line() -> str:
    """` at file.py:12 in forward: \\`if x.sum() > 0:\\``, or nothing when no line is known."""
    where = user_location()
    if where is None:
        return ""
    text = linecache.getline(where[0], where[1]).strip()
    return f" at {where[0]}:{where[1]} in {where[2]}" + (f": `{text}`" if text else "")
