"""The package opt_einsum, which einsum here does not need: it chooses the order of contraction itself, greedily."""

from __future__ import annotations

from flambeau._compat.settings import fix

enabled = True
strategy = "greedy"  # others cost as much: what einsum computes does not depend on them


def is_available() -> bool:
    return False


fix(__name__, "enabled", "einsum always chooses the order of contraction itself", refuse=False)
