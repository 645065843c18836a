"""The order of contraction in einsum, if the package opt_einsum is there to choose it."""

from __future__ import annotations

import importlib.util

enabled = True
strategy = "auto"


def is_available() -> bool:
    return importlib.util.find_spec("opt_einsum") is not None
