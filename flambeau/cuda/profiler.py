"""Control of NVIDIA's profilers: which part of a program they look at (`ncu --profile-from-start off`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flambeau.cuda import _library


def start() -> None:
    if _library.available():
        _library.call("profile", 1)


def stop() -> None:
    if _library.available():
        _library.call("profile", 0)


@contextlib.contextmanager
def profile() -> Iterator[None]:
    start()
    try:
        yield
    finally:
        stop()
