"""Hooks that join `DistributedDataParallel` and `ZeroRedundancyOptimizer`.

A rank owns whole parameters. Each bucket is averaged by the given hook; the owners' updates and the broadcasts of updated
parameters follow in the optimizer's `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]

Hook = Callable[[Any, Any], Any]


def hook_with_zero_step(hook: Hook, ddp: Any, zero: Any, shard_buckets: bool = False) -> Hook:
    """The hook itself; `zero.step()` at the end of backward is queued with the last bucket."""
    zero._overlap_with_ddp = True

    def wrapped(state: Any, bucket: Any) -> Any:
        if bucket.is_last():
            ddp._after_reduction.append(zero._step_after_reduction)
        return hook(state, bucket)

    return wrapped


hook_with_zero_step_interleaved = hook_with_zero_step
