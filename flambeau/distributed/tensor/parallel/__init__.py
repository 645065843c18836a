"""Tensor parallelism: plans that say how the layers of a module are divided over a mesh."""

from flambeau.distributed.tensor.parallel.api import parallelize_module
from flambeau.distributed.tensor.parallel.loss import loss_parallel
from flambeau.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
    "RowwiseParallel", "SequenceParallel", "loss_parallel", "parallelize_module",
]  # fmt: skip
