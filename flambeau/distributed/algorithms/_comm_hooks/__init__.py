"""Hooks of `FullyShardedDataParallel.register_comm_hook`."""

from flambeau.distributed.algorithms._comm_hooks import default_hooks

__all__ = ["LOW_PRECISION_HOOKS", "default_hooks"]

LOW_PRECISION_HOOKS = [default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook]
