"""Communication hooks of `DistributedDataParallel`: what happens to a bucket of gradients instead of an all-reduce."""

from __future__ import annotations

import enum
import functools
from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks import (  # noqa: F401
    ddp_zero_hook,
    debugging_hooks,
    default_hooks,
    optimizer_overlap_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


def _register(model: Any, state: Any, hook: Any, comm_hook_type: Any = None) -> None:
    model.register_comm_hook(state, hook)


class DDPCommHookType(enum.Enum):
    ALLREDUCE = functools.partial(_register, hook=default_hooks.allreduce_hook)
    FP16_COMPRESS = functools.partial(_register, hook=default_hooks.fp16_compress_hook)
    BF16_COMPRESS = functools.partial(_register, hook=default_hooks.bf16_compress_hook)
    QUANTIZE_PER_TENSOR = functools.partial(_register, hook=quantization_hooks.quantization_pertensor_hook)
    QUANTIZE_PER_CHANNEL = functools.partial(_register, hook=quantization_hooks.quantization_perchannel_hook)
    POWER_SGD = functools.partial(_register, hook=powerSGD_hook.powerSGD_hook)
    POWER_SGD_RANK2 = functools.partial(_register, hook=functools.partial(powerSGD_hook.powerSGD_hook))
    BATCHED_POWER_SGD = functools.partial(_register, hook=powerSGD_hook.batched_powerSGD_hook)
    NOOP = functools.partial(_register, hook=debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    comm_hook_type.value(model=model, state=state)
