"""oneDNN, which does large products and convolutions on the CPU where it is installed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

from flambeau import _libraries
from flambeau._compat.settings import fix

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2
enabled = True
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    return _libraries.path("dnnl") is not None


@contextlib.contextmanager
def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True) -> Iterator[None]:
    """The switches as given inside a `with` block; turning oneDNN off warns, as it stays on."""
    from flambeau.backends import mkldnn

    wanted = {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32}
    before = {name: globals()[name] for name in wanted}
    for name, value in wanted.items():
        setattr(mkldnn, name, value)
    try:
        yield
    finally:
        globals().update(before)


class verbose:
    """A `with` block in which oneDNN reports its calls on stdout."""

    def __init__(self, level: int) -> None:
        self.level = level

    def _set(self, level: int) -> None:
        if (path := _libraries.path("dnnl")) is None:
            raise RuntimeError("[mkldnn.verbose] expected oneDNN to be installed, got a machine without it")
        if ctypes.CDLL(path).dnnl_set_verbose(level) != 0:
            raise RuntimeError(f"[mkldnn.verbose] expected a level from 0 to 2, got {level}")

    def __enter__(self) -> verbose:
        if self.level != VERBOSE_OFF:
            self._set(self.level)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.level != VERBOSE_OFF:
            self._set(VERBOSE_OFF)


fix(__name__, "enabled deterministic", "oneDNN cannot be switched, and its results do not vary", refuse=False)
