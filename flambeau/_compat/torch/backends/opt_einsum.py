"""The package opt_einsum, which einsum here does not need: it chooses the order of contraction itself, greedily."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from flambeau._compat.settings import fix

enabled = True
strategy = "greedy"  # others cost as much: what einsum computes does not depend on them


def is_available() -> bool:
    return False


fix(__name__, "enabled", "einsum always chooses the order of contraction itself", refuse=False)


@contextlib.contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """Other settings for a block. They change no result."""
    module = sys.modules[__name__]
    before = module.enabled, module.strategy
    wanted = (before[0] if enabled is None else enabled, before[1] if strategy is None else strategy)
    vars(module).update(enabled=wanted[0], strategy=wanted[1])
    try:
        yield
    finally:
        vars(module).update(enabled=before[0], strategy=before[1])
