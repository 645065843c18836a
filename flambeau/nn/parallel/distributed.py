"""`DistributedDataParallel` in a world of one process: gradients are already the mean over the processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from flambeau.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Calls its module. A process group must have been made, as programs for many processes do."""

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
    ) -> None:
        super().__init__()
        from flambeau import distributed

        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise RuntimeError("[DistributedDataParallel] expected a parameter that requires a gradient, got none")
        self.process_group = process_group or distributed.distributed_c10d._get_default_group()
        if device_ids and module is not None:
            raise ValueError(
                f"[DistributedDataParallel] expected no device_ids for a module on the CPU, got {device_ids}"
            )
        self.module, self.dim = module, dim
        self.device_ids = self.output_device = None
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.require_backward_grad_sync = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A `with` block in which gradients are only added up."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, **options: Any) -> Iterator[None]:
        """A `with` block for processes with unequal numbers of batches."""
        yield

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """With one process nothing is communicated, and the hook is never called."""

    def _set_static_graph(self) -> None: ...
