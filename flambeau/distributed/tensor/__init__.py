"""Tensors spread over processes: the words to describe them are here, the tensors are not written yet."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


def __getattr__(name: str) -> Any:
    from flambeau import _absent

    return _absent.attribute(__name__, name)
