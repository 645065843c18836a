"""The package opt_einsum, which einsum here does not use: it chooses the order of contraction itself."""

from __future__ import annotations

from flambeau._compat.settings import fix

enabled = False
strategy = None


def is_available() -> bool:
    return False


fix(__name__, "enabled strategy", "einsum does not use opt_einsum")
