"""An older name of `distributed.tensor`."""

from __future__ import annotations

from typing import Any

from flambeau.distributed import tensor
from flambeau.distributed.tensor import Partial, Placement, Replicate, Shard  # noqa: F401


def __getattr__(name: str) -> Any:
    return getattr(tensor, name)


def __dir__() -> list[str]:
    return dir(tensor)
