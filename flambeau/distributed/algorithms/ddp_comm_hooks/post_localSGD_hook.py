"""Local SGD after a warm-up: gradients are averaged within a subgroup only; models are averaged now and then."""

from __future__ import annotations

from typing import Any

from flambeau.distributed._groups import _get_default_group, new_subgroups
from flambeau.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import _averaged

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Counts iterations, and holds the groups for before and after the warm-up."""

    def __init__(
        self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        if bucket.is_last():
            self.iter += 1


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Any:
    group = state.process_group if state.process_group is not None else _get_default_group()
    iteration = state.iter
    state.maybe_increase_iter(bucket)
    if iteration < state.start_localSGD_iter:
        return _averaged(group, bucket.buffer())
    if not state.post_local_gradient_allreduce:
        return noop_hook(None, bucket)
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups()
    return _averaged(state.subgroup, bucket.buffer())
