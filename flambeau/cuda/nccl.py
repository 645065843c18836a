"""NVIDIA's collectives, which this build does not have."""

from __future__ import annotations

from typing import Any


def version() -> tuple[int, ...]:
    raise RuntimeError("[nccl] expected a build with NCCL, got one without")


def is_available(tensors: Any) -> bool:
    return False
