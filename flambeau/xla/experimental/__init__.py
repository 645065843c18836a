"""The names of torch_xla.experimental that programs use: `eager_mode`, `compile`, and the loop `scan`."""

from __future__ import annotations

from typing import Any

from flambeau import _C
from flambeau.xla import compile

__all__ = ["compile", "eager_mode", "is_eager_mode"]

_MOST = 4096  # operators of a graph, otherwise
_eager = False


def eager_mode(enable: bool) -> None:
    """Runs each call at once, instead of recording it; functions of `compile` run as programs of their own all the same."""
    global _eager
    _eager = enable
    _C._lazy_set("xla", None, 1 if enable else _MOST)


def is_eager_mode() -> bool:
    return _eager


_MODULES = (
    "assume_pure", "distributed_checkpoint", "eager", "gradient_accumulation", "pjrt", "scan", "scan_layers",
    "spmd_fully_sharded_data_parallel", "xla_sharding",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
