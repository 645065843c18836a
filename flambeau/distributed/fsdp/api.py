"""PyTorch's place of the options of sharded data parallelism."""

from flambeau.distributed.fsdp.fully_sharded_data_parallel import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictType,
)

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalStateDictConfig",
    "MixedPrecision", "ShardedStateDictConfig", "ShardingStrategy", "StateDictType",
]  # fmt: skip
