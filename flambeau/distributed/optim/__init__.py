"""Optimizers whose state is divided over processes, or that average models."""

from typing import Any

from flambeau.distributed.optim.apply_optimizer_in_backward import (
    _apply_optimizer_in_backward,
    _get_in_backward_optimizers,
)
from flambeau.distributed.optim.functional import as_functional_optim
from flambeau.distributed.optim.named_optimizer import _NamedOptimizer
from flambeau.distributed.optim.post_localSGD_optimizer import PostLocalSGDOptimizer
from flambeau.distributed.optim.zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = [
    "DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer", "_NamedOptimizer",
    "_apply_optimizer_in_backward", "_get_in_backward_optimizers", "as_functional_optim",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "DistributedOptimizer":  # loads rpc
        from flambeau.distributed.optim.optimizer import DistributedOptimizer

        return DistributedOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
