"""oneDNN, which does products and convolutions on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2
enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    return True


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
    names = ("enabled", "deterministic", "allow_tf32")
    before = {name: globals()[name] for name in names}
    globals().update(enabled=enabled, deterministic=deterministic, allow_tf32=allow_tf32)
    try:
        yield
    finally:
        globals().update(before)


class verbose:
    """A `with` block in which oneDNN would report its calls; accepted and without effect."""

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> verbose:
        return self

    def __exit__(self, *exception: object) -> None: ...
