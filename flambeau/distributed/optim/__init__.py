"""Optimizers whose state is divided over processes, or that average models."""

from flambeau.distributed.optim.apply_optimizer_in_backward import (
    _apply_optimizer_in_backward,
    _get_in_backward_optimizers,
)
from flambeau.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from flambeau.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = [
    "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer", "_apply_optimizer_in_backward",
    "_get_in_backward_optimizers",
]  # fmt: skip
