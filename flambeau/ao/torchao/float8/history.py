"""Delayed scales: what the largest values of the steps before say of the next."""

from __future__ import annotations

import flambeau as fl
from flambeau import Tensor
from flambeau.ao.torchao.float8.casting import scale_of
from flambeau.ao.torchao.float8.linear import Float8Linear
from flambeau.nn.modules.module import Module

__all__ = ["sync_float8_amax_and_scale_history"]


def _largest(layer: Float8Linear, kind: str) -> Tensor:
    """Of this step; the gradient's was left as the gradient of its buffer."""
    slot = layer._buffers[f"fp8_amax_{kind}"]
    assert slot is not None
    if kind != "grad_output":
        return slot
    seen, slot.grad = slot.grad, None
    return fl.zeros_like(slot) if seen is None else seen


@fl.no_grad()
def sync_float8_amax_and_scale_history(model: Module) -> None:
    """Notes the largest values of a step and chooses the scales of the next, for all layers at once.

    To be called after each backward. Values are the same on all processes of the default group, where there is one. A gradient of
    several calls or microbatches counts with the sum of their largest values, which is safe.
    """
    places: dict[tuple[fl.dtype, bool], list[tuple[Float8Linear, str]]] = {}
    for layer in model.modules():
        if isinstance(layer, Float8Linear):
            for kind in layer.delayed_kinds:
                dtype = getattr(layer.config, f"cast_config_{kind}").target_dtype
                places.setdefault((dtype, layer.config.round_scales_to_power_of_2), []).append((layer, kind))
    for (dtype, power_of_2), slots in places.items():
        now = fl.stack([_largest(*slot).detach() for slot in slots])
        if fl.distributed.is_available() and fl.distributed.is_initialized():
            fl.distributed.all_reduce(now, fl.distributed.ReduceOp.MAX)
        histories = [layer._buffers[f"fp8_amax_history_{kind}"] for layer, kind in slots]
        past = fl.stack([h for h in histories if h is not None]).roll(1, 1)
        past[:, 0] = now
        largest = past.amax(1)
        # A tensor of zeros says nothing of the next step.
        chosen = fl.where(largest > 0, scale_of(largest, dtype, power_of_2), 1.0)
        fl._foreach_copy_(histories, list(past.unbind()))
        fl._foreach_copy_([layer._buffers[f"fp8_scale_{kind}"] for layer, kind in slots], list(chosen.unbind()))
