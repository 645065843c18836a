"""Tensors spread over processes: the words to describe them are here, the tensors are not written yet."""

from __future__ import annotations

from flambeau._compat import absent
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = ["Partial", "Placement", "Replicate", "Shard"]

__getattr__ = absent.names_of(__name__)
