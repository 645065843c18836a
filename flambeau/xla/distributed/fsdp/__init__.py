"""torch_xla.distributed.fsdp: parameters divided over the processes. There is one, which holds all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as fl
from flambeau.utils._pytree import tree_map
from flambeau.xla.distributed.fsdp.utils import apply_xla_patch_to_nn_linear, checkpoint_module

__all__ = ["XlaFullyShardedDataParallel", "apply_xla_patch_to_nn_linear", "checkpoint_module"]


class XlaFullyShardedDataParallel(fl.nn.Module):
    """A module whose parameters are kept in pieces by the processes, and gathered where they are needed."""

    def __init__(
        self,
        module: Any,
        reshard_after_forward: bool = True,
        flatten_parameters: bool = False,
        execute_sharding_on_init: bool = True,
        optimization_barrier_in_forward: bool = True,
        optimization_barrier_in_backward: bool = True,
        mark_step_on_finalization: bool = False,
        disable_reshard_on_root: bool = True,
        compute_dtype: Any = None,
        buffer_dtype: Any = None,
        fp32_reduce_scatter: bool = False,
        sharding_groups: Any = None,
        sharding_rank: int | None = None,
        sharding_world_size: int | None = None,
        shard_param_on_dim_0: bool = False,
        pin_layout_in_collective_ops: bool = True,
        auto_wrap_policy: Any = None,
        auto_wrapper_callable: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if sharding_world_size not in (None, 1) or sharding_rank not in (None, 0):
            raise ValueError(
                f"[XlaFullyShardedDataParallel] expected the one process there is, got rank {sharding_rank} of {sharding_world_size}"
            )
        if auto_wrap_policy is not None:
            from flambeau.xla.distributed.fsdp.wrap import recursive_wrap

            wrapper = auto_wrapper_callable or (lambda inner, **_: XlaFullyShardedDataParallel(inner))
            recursive_wrap(module, auto_wrap_policy, wrapper, set(), set(), only_wrap_children=True)
        self.compute_dtype, self.mark_step_on_finalization = compute_dtype, mark_step_on_finalization
        if buffer_dtype is not None:
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.data = buffer.to(buffer_dtype)
        self.module = module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self.compute_dtype is None:
            return self.module(*args, **kwargs)

        def computed(value: Any) -> Any:
            return value.to(self.compute_dtype) if isinstance(value, fl.Tensor) and value.is_floating_point() else value

        cast = {name: computed(p) for name, p in self.module.named_parameters()}
        return fl.func.functional_call(self.module, cast, tree_map(computed, args), tree_map(computed, kwargs))

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, groups: Any = None) -> Any:
        """Over the pieces of all processes."""
        return fl.nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

    def get_original_names_and_sizes(self) -> Any:
        return ((name, p.shape) for name, p in self.module.named_parameters())

    def get_shard_metadata(self) -> dict[str, Any]:
        """What is needed to join the pieces of checkpoints."""
        return {"shard_info": {}, "flatten_info": {}, "buffer_info": {}, "world_size": 1, "rank": 0}
