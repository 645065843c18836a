"""Reductions of gradients for sharded models: `hook(state, gradient)` reduces in place, `hook(state, gradient, part)` into a part."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.distributed import _collectives as collectives
from flambeau.distributed import _groups

__all__ = [
    "DefaultState", "LowPrecisionState", "allreduce_hook", "bf16_compress_hook", "fp16_compress_hook", "reduce_scatter_hook",
]  # fmt: skip


class DefaultState:
    """The group, and factors by which gradients are divided before and after they are summed, so that neither step overflows."""

    def __init__(self, process_group: Any) -> None:
        if process_group is None:
            raise ValueError(f"[DefaultState] Expected to pass in an explicit ProcessGroup to {self}.")
        self.process_group = process_group
        self.world_size = _groups.get_world_size(process_group)
        factor = 1
        while self.world_size % factor == 0 and self.world_size / factor > factor:
            factor *= 2
        self.gradient_predivide_factor = float(factor)
        self.gradient_postdivide_factor = self.world_size / self.gradient_predivide_factor


class LowPrecisionState(DefaultState):
    """The same with the dtype that parameters have."""

    def __init__(self, process_group: Any, parameter_type: Any = flambeau.float32) -> None:
        super().__init__(process_group)
        self.parameter_type = parameter_type


def allreduce_hook(state: DefaultState, grad: Any) -> None:
    """The mean over all processes, in place."""
    grad.div_(state.gradient_predivide_factor)
    collectives.all_reduce(grad, group=state.process_group)
    grad.div_(state.gradient_postdivide_factor)


def reduce_scatter_hook(state: DefaultState, grad: Any, output: Any) -> None:
    """This process's part of the mean."""
    grad.div_(state.gradient_predivide_factor)
    collectives.reduce_scatter_tensor(output, grad, group=state.process_group)
    output.div_(state.gradient_postdivide_factor)


def _compressed(dtype: Any, state: LowPrecisionState, grad: Any, output: Any) -> None:
    if output is None:
        lowered = grad.to(dtype)
        allreduce_hook(state, lowered)
        grad.data = lowered.to(state.parameter_type)
        return
    lowered = output.to(dtype)
    reduce_scatter_hook(state, grad.to(dtype), lowered)
    with flambeau.no_grad():
        output.copy_(lowered)


def fp16_compress_hook(state: LowPrecisionState, grad: Any, output: Any = None) -> None:
    """Gradients travel as float16."""
    _compressed(flambeau.float16, state, grad, output)


def bf16_compress_hook(state: LowPrecisionState, grad: Any, output: Any = None) -> None:
    """Gradients travel as bfloat16."""
    _compressed(flambeau.bfloat16, state, grad, output)
