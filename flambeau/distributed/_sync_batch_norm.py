"""Batch normalisation with the statistics of the batches of all processes."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed.nn import functional as collectives

__all__ = ["sync_batch_norm"]


def sync_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    eps: float,
    momentum: float,
    group: Any,
) -> Any:
    """Normalises with mean and variance over all processes, and updates the running statistics in place. Gradients of
    the statistics are summed over the processes by the derivative of `all_reduce`."""
    dims = [dim for dim in range(input.dim()) if dim != 1]
    shape = [-1 if dim == 1 else 1 for dim in range(input.dim())]
    values = input.float() if input.dtype in (flambeau.float16, flambeau.bfloat16) else input
    count = values.new_full((1,), values.numel() // values.shape[1])
    sums = collectives.all_reduce(flambeau.cat([values.sum(dims), count]), group=group)
    total = sums[-1].detach()
    mean = sums[:-1] / total
    centred = values - mean.view(shape)
    variance = collectives.all_reduce(centred.square().sum(dims), group=group) / total
    if running_mean is not None:
        with flambeau.no_grad():
            running_mean.lerp_(mean.detach().to(running_mean.dtype), momentum)
            unbiased = variance.detach() * (total / (total - 1).clamp_min(1))
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    scale = (variance + eps).rsqrt()
    result = centred * scale.view(shape)
    if weight is not None:
        result = result * weight.view(shape)
    if bias is not None:
        result = result + bias.view(shape)
    return result.to(input.dtype)
