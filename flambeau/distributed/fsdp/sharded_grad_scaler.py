"""`ShardedGradScaler`: loss scaling where each process sees a part of the gradients.

An overflow in one part skips the step everywhere, hence the flags of all processes are combined before a step.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flambeau.amp.grad_scaler import GradScaler
from flambeau.distributed import _collectives, _groups
from flambeau.distributed._types import ReduceOp
from flambeau.distributed.tensor._api import DTensor

__all__ = ["ShardedGradScaler"]


def _local(gradient: Any) -> Any:
    return gradient._local_tensor if isinstance(gradient, DTensor) else gradient


class ShardedGradScaler(GradScaler):
    """A `GradScaler` whose decision to skip a step is the same on all processes of a group."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        self.process_group = process_group if process_group is not None else _groups._get_default_group()

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Any]:
        groups = [
            {"params": [SimpleNamespace(grad=_local(parameter.grad)) for parameter in group["params"]]}
            for group in optimizer.param_groups
        ]
        by_device = super()._unscale_grads_(SimpleNamespace(param_groups=groups), inv_scale, found_inf, allow_fp16)
        by_device = by_device or {found_inf.device: found_inf}  # a process without gradients takes part, too
        for flag in by_device.values():
            _collectives.all_reduce(flag, ReduceOp.MAX, self.process_group)
        return by_device
