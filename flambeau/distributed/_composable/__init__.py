"""`fully_shard` and `replicate` under their older module name."""

from flambeau.distributed._composable.replicate import replicate
from flambeau.distributed.fsdp import fully_shard

__all__ = ["fully_shard", "replicate"]
