"""The types of named results: `return_types.topk` is what `topk` returns."""

from __future__ import annotations

from typing import Any

from flambeau import _C


def __getattr__(name: str) -> Any:
    kind = None if name.startswith("_") else _C._named_result_type(name)
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = kind
    return kind
