"""The functions of torch_xla.runtime that a single process needs."""

from __future__ import annotations

__all__ = ["device_type", "global_ordinal", "local_ordinal", "world_size"]


def world_size() -> int:
    return 1


def global_ordinal() -> int:
    return 0


def local_ordinal() -> int:
    return 0


def device_type() -> str:
    from flambeau.xla import engine

    return engine.platform().upper()
