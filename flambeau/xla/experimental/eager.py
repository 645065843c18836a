"""The module torch_xla.experimental.eager."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flambeau.xla.experimental import compile, eager_mode, is_eager_mode

__all__ = ["compile", "eager_mode", "eager_mode_context", "is_eager_mode"]


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[None]:
    """Eager mode, or recording, inside a block."""
    before = is_eager_mode()
    eager_mode(enable)
    try:
        yield
    finally:
        eager_mode(before)
