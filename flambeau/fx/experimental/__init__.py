"""Graphs from operators, symbolic shapes, and passes that may change. Modules are imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = (
    "_config", "const_fold", "debug", "merge_matmul", "meta_tracer", "normalize", "optimization", "proxy_tensor", "rewriter",
    "symbolic_shapes",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    from flambeau._compat import absent

    return absent.attribute(__name__, name)
